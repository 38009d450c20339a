"""Rules about the quorum service, where the groups of elastic jobs meet (docs/quorum.md)."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.config.binding import is_loopback
from holdfast.doctor.advice import Advice, AdviceLevel
from holdfast.doctor.facts import DoctorFacts, names


def away(facts: DoctorFacts) -> Iterator[Advice]:
    if facts.quorum is not None and facts.quorum.problem:
        yield Advice(
            "quorum.away",
            AdviceLevel.ERROR if _elastic_jobs(facts) else AdviceLevel.WARNING,
            facts.quorum.problem,
            "Elastic jobs cannot start; running ones wait at their next step, some for ten minutes, then they end.",
            "systemctl enable --now holdfast-quorum   # on the head node; or controller.toml: [quorum] enabled = false",
        )


def reach(facts: DoctorFacts) -> Iterator[Advice]:
    """A practice cluster's nodes are on the head node itself."""
    if facts.quorum is None or facts.slurm is None or not is_loopback(facts.quorum.bind):
        return
    far = [node.name for node in facts.slurm.computing if not is_loopback(node.address)]
    if far:
        yield Advice(
            "quorum.loopback",
            AdviceLevel.ERROR if _elastic_jobs(facts) else AdviceLevel.HINT,
            f"the quorum service listens on {facts.quorum.bind}, which no other node reaches: {names(far)}",
            "The groups of an elastic job cannot form a quorum, unless they run on the head node.",
            'controller.toml: [quorum] bind = "ADDRESS"   # of the head node on the cluster\'s own network',
        )


def unwritten(facts: DoctorFacts) -> Iterator[Advice]:
    if facts.quorum is not None and facts.quorum.unwritten:
        rooms = facts.quorum.unwritten
        yield Advice(
            "quorum.unwritten",
            AdviceLevel.ERROR,
            f"rendezvous that cannot be recorded: {names(rooms)}: {next(iter(rooms.values()))}",
            "Their groups keep training; a group that joins or leaves stops the others until the database answers.",
            "journalctl -u holdfast-quorum   # and the database, or the disk, that store.url names",
        )


def _elastic_jobs(facts: DoctorFacts) -> bool:
    return facts.slurm is not None and facts.slurm.elastic_jobs > 0


RULES = (away, reach, unwritten)
