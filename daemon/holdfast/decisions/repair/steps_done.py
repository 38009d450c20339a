"""What was done to a node in the course of an incident, from the record of its steps. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from holdfast.decisions.common import attempted_steps
from holdfast.decisions.machines import replacement
from holdfast.decisions.repair import machine_gone, validation
from holdfast.decisions.repair.ladder import Rung
from holdfast.model.actions import steps
from holdfast.model.actions.action import (
    Action,
    Intent,
    IntentState,
    Launch,
    Reboot,
    Replace,
    SendOrder,
    StopStart,
    Verb,
)
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident


class Repair(StrEnum):
    """One thing that was done to the machine, in words."""

    RESET = "its GPUs were reset"
    REBOOTED = "it was rebooted"
    STOPPED = "its machine was stopped and started"
    REPLACED = "its machine was replaced"
    PROVIDERS = "its provider exchanged or restarted its machine"
    OTHERS = "another hand exchanged its machine"


class RepairProof(StrEnum):
    """Tests that showed the machine to be good, in words."""

    JOB = "not tested, its job ran on"
    CHECKS = "its checks passed"
    DEEP = "its checks and its deep checks passed"


@dataclass(frozen=True, slots=True)
class RepairsDone:
    """What was done to a node."""

    repairs: tuple[Repair, ...]
    """In their order, each once, those that did not last too; empty: Holdfast repaired nothing."""
    proof: RepairProof | None
    """None: nothing was shown (yet)."""

    @property
    def text(self) -> str:
        """``it was rebooted; its checks passed``, or that Holdfast repaired nothing."""
        repaired = ", then ".join(self.repairs) or "Holdfast repaired nothing"
        return f"{repaired}; {self.proof}" if self.proof is not None else repaired


def done(world: World, incident: Incident) -> RepairsDone:
    """Steps done so far."""
    found = [repair for intent in world.book.intents_of(incident.id) if (repair := _repair(world, incident, intent))]
    if incident.rung == Rung.WATCH:
        found.append(Repair.PROVIDERS)
    if machine_gone.brought_by_others(world, incident):
        found.append(Repair.OTHERS)
    return RepairsDone(tuple(dict.fromkeys(found)), _proof(world, incident))


_OF_ACTION: dict[type[Action], Repair] = {
    Reboot: Repair.REBOOTED,
    StopStart: Repair.STOPPED,
    Replace: Repair.REPLACED,
}


def _repair(world: World, incident: Incident, intent: Intent) -> Repair | None:
    action = intent.action
    if intent.state is not IntentState.DONE:
        return None
    if isinstance(action, SendOrder):
        return Repair.RESET if action.verb is Verb.RESET_GPU else None
    if isinstance(action, Launch):  # one of an earlier attempt was given back
        return Repair.REPLACED if intent == replacement.launched(world, incident) else None
    return _OF_ACTION.get(type(action))


def _proof(world: World, incident: Incident) -> RepairProof | None:
    checked = validation.validation(world, incident)
    if checked is None:
        return RepairProof.JOB if incident.validated_at is not None else None
    if checked.state is not IntentState.DONE:
        return None
    deep = attempted_steps.done(
        world.book.attempts(incident.id, steps.deep_check(incident.node, incident.repair_attempt))
    )
    return RepairProof.DEEP if deep is not None else RepairProof.CHECKS
