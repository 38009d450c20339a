"""Rules about the running controller: what it cannot decide about (docs/safety.md)."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.decisions.parts import disk_part
from holdfast.doctor.advice import Advice, AdviceLevel
from holdfast.doctor.facts import DoctorFacts, names
from holdfast.model.parts import Condition, PartName, PartState


def failing(facts: DoctorFacts) -> Iterator[Advice]:
    if facts.controller.failing:
        yield Advice(
            "controller.failing",
            AdviceLevel.ERROR,
            f"parts of the controller fail unexpectedly: {names(facts.controller.failing)}",
            "What such a part does is left undone until it passes again; while turns fail no node is drained and no job recovered.",
            "journalctl -u holdfast-controller -g unexpected_error   # holdfast runbook turn-fails",
        )


def set_aside(facts: DoctorFacts) -> Iterator[Advice]:
    if facts.controller.set_aside:
        yield Advice(
            "controller.set_aside",
            AdviceLevel.ERROR,
            f"set aside, as no decision can be made about it: {names(facts.controller.set_aside)}",
            "It is kept in the store; the controller decides as if it were not known, and tries it again every ten minutes.",
            "journalctl -u holdfast-controller -g input_set_aside   # holdfast runbook turn-fails",
        )


def held(facts: DoctorFacts) -> Iterator[Advice]:
    if facts.controller.held:
        yield Advice(
            "controller.held_nodes",
            AdviceLevel.ERROR,
            f"nodes that are held, as no decision can be made about an incident of theirs: {names(facts.controller.held)}",
            "Nothing but a drain for another fault is done about such a node until an operator has closed the incident.",
            "holdfast nodes; holdfast incident show ID; holdfast incident close ID   # holdfast runbook turn-fails",
        )


_PARTS = {
    PartName.STORE: (
        "controller.store",
        "Nothing is decided and no report is accepted; agents keep their findings and send them later.",
    ),
    PartName.LOOP: (
        "controller.loop",
        "Faults are recorded at most; nothing is decided.",
    ),
    PartName.ACTOR: (
        "controller.actor",
        "Faults are recorded, and no node is drained and no job is recovered.",
    ),
    PartName.NOTIFIER: (
        "controller.notifier",
        "What needs an operator is in the log and on `holdfast nodes` alone.",
    ),
    PartName.CONNECTIONS: (
        "controller.connections",
        "Agents and operators keep the connections that they have; one that connects again may have to try several times.",
    ),
}
"""Parts with a rule here, each with its id and what is lost; the others have separate rules."""
_LEVELS = {Condition.FAILED: AdviceLevel.ERROR, Condition.WARNING: AdviceLevel.WARNING}


def parts(facts: DoctorFacts) -> Iterator[Advice]:
    for part in facts.controller.parts:
        if part.condition in _LEVELS and part.name in _PARTS and not _said_elsewhere(part, facts):
            name, cost = _PARTS[part.name]
            no_address = part.name is PartName.NOTIFIER and part.condition is Condition.WARNING
            level = AdviceLevel.HINT if no_address else _LEVELS[part.condition]
            yield Advice(name, level, f"{part.name}: {part.text}", cost, part.next_step)


def _said_elsewhere(part: PartState, facts: DoctorFacts) -> bool:
    """By a rule that knows more of it: ``site.steps_untaken``, ``controller.failing``."""
    if part.name is PartName.ACTOR:
        return facts.untaken is not None
    return part.name is PartName.LOOP and bool(facts.controller.failing)


def disk(facts: DoctorFacts) -> Iterator[Advice]:
    part = disk_part(facts.disk)
    level = _LEVELS.get(part.condition)
    if level is not None:
        yield Advice(
            "site.disk",
            level,
            f"the disk of the store is nearly full: {part.text}",
            "On a full disk nothing is decided; a backup, as before an upgrade, needs the size of the store.",
            part.next_step,
        )


RULES = (failing, set_aside, held, parts, disk)
