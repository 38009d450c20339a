"""Rules about what processes could not read, and have set aside (docs/upgrade.md)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from holdfast.doctor.advice import Advice, AdviceLevel
from holdfast.doctor.facts import DoctorFacts, names


def agents(facts: DoctorFacts) -> Iterator[Advice]:
    found = {node: each[-1] for node, each in (facts.agents or {}).items() if each and each[-1].set_aside}
    if found:
        count = sum(agent.set_aside for agent in found.values())
        since = min((agent.set_aside_since for agent in found.values() if agent.set_aside_since), default=None)
        yield Advice(
            "agents.unreadable",
            AdviceLevel.WARNING,
            f"{count} files or items that agents cannot read{_since(since)}: {names(found)}",
            "The agents continue without them. Faults among them were reported for an operator.",
            "journalctl -u holdfast-agent | grep _unreadable   # on each of them: it says what to do and which file to remove",
        )


def rows(facts: DoctorFacts) -> Iterator[Advice]:
    if facts.unreadable_rows.count:
        yield Advice(
            "site.unreadable_rows",
            AdviceLevel.WARNING,
            f"{facts.unreadable_rows.count} rows of the store cannot be read{_since(facts.unreadable_rows.since)}",
            "Their nodes are held, or nothing is known of them, until an operator has looked (docs/upgrade.md).",
            "holdfast incidents   # close those of kind unreadable; journalctl -u holdfast-controller | grep unreadable_document",
        )


def rendezvous(facts: DoctorFacts) -> Iterator[Advice]:
    if facts.unreadable_rooms.count:
        yield Advice(
            "quorum.unreadable",
            AdviceLevel.WARNING,
            f"{facts.unreadable_rooms.count} rendezvous of elastic jobs cannot be read{_since(facts.unreadable_rooms.since)}",
            "They were closed; the groups of their jobs get new ones when they start again.",
            "journalctl -u holdfast-quorum | grep room_unreadable   # it says which jobs, and what to do",
        )


def _since(since: datetime | None) -> str:
    return "" if since is None else f" since {since:%Y-%m-%d %H:%M} UTC"


RULES = (agents, rows, rendezvous)
