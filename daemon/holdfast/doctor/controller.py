"""Rules about the running controller: what it cannot decide about (docs/safety.md)."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.doctor.advice import Advice, Level
from holdfast.doctor.facts import DoctorFacts, names


def failing(facts: DoctorFacts) -> Iterator[Advice]:
    if facts.controller.failing:
        yield Advice(
            "controller.failing",
            Level.ERROR,
            f"parts of the controller fail unexpectedly: {names(facts.controller.failing)}",
            "What such a part does is left undone until it passes again; while turns fail no node is drained and no job recovered.",
            "journalctl -u holdfast-controller -g unexpected_error   # docs/runbooks/turn-fails.md",
        )


def set_aside(facts: DoctorFacts) -> Iterator[Advice]:
    if facts.controller.set_aside:
        yield Advice(
            "controller.set_aside",
            Level.ERROR,
            f"set aside, as no decision can be made about it: {names(facts.controller.set_aside)}",
            "It is kept in the store; the controller decides as if it were not known, and tries it again every ten minutes.",
            "journalctl -u holdfast-controller -g input_set_aside   # docs/runbooks/turn-fails.md",
        )


def held(facts: DoctorFacts) -> Iterator[Advice]:
    if facts.controller.held:
        yield Advice(
            "controller.held_nodes",
            Level.ERROR,
            f"nodes that are held, as no decision can be made about an incident of theirs: {names(facts.controller.held)}",
            "Nothing but a drain for another fault is done about such a node until an operator has closed the incident.",
            "holdfast nodes; holdfast incident show ID; holdfast incident close ID   # docs/runbooks/turn-fails.md",
        )


RULES = (failing, set_aside, held)
