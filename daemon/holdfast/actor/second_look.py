"""Re-evaluation of a decided step right before it is carried out. Pure.

The store may have changed since the step was planned: a brake, a pause, an operator, or a node that reports again."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from holdfast.actor.carry_out import AT_NODES
from holdfast.decisions.brakes.overtaking import overtakes
from holdfast.decisions.common import node_incidents
from holdfast.decisions.nodes.hands_off import in_window
from holdfast.model.actions import steps
from holdfast.model.actions.action import (
    Action,
    AdoptSpare,
    Assign,
    CheckInstance,
    Drain,
    DropHold,
    HoldJob,
    HoldNodes,
    Intent,
    IntentState,
    Launch,
    Notify,
    PromoteSpare,
    Reboot,
    Replace,
    Requeue,
    SetDown,
    StopStart,
    TellOwner,
    Terminate,
    Undrain,
)
from holdfast.model.book import Book
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.operators.maintenance import KeepWindow, window_of
from holdfast.model.operators.node_orders import DrainForOperator, ReleaseForOperator
from holdfast.model.policies.policy import Mode
from holdfast.ports import IntentOutcome

_NOT_AFTER_THE_END = (
    Drain,
    Requeue,
    HoldJob,
    SetDown,
    Undrain,
    HoldNodes,
    PromoteSpare,
    Launch,
    Assign,
    AdoptSpare,
    Replace,
    Reboot,
    StopStart,
)


class Recheck(Enum):
    """Verdict of the re-evaluation right before a step."""

    GO = "go"
    WAIT = "wait"
    """A pause and observe mode hold everything except notifications and what an operator ordered of a node; an incident that cannot be
    read holds everything except a drain. A step that was started under a brake is finished once the brake is released."""
    DECIDE_AGAIN = "decide_again"
    """A brake tripped first: the step is decided again, so that a job that fails on its own meanwhile need not wait for the release."""


def look_again(book: Book, intent: Intent, mode: Mode = Mode.ACT) -> Recheck:
    if isinstance(intent.action, Notify | CheckInstance | KeepWindow | DrainForOperator | ReleaseForOperator):
        return Recheck.GO
    if mode is Mode.OBSERVE or book.paused is not None or _unreadable(book, intent):
        return Recheck.WAIT
    if not overtakes(book, intent):
        return Recheck.GO
    return Recheck.DECIDE_AGAIN if intent.state is IntentState.PLANNED else Recheck.WAIT


def _unreadable(book: Book, intent: Intent) -> bool:
    exempt = isinstance(intent.action, DropHold | TellOwner)
    return not exempt and node_incidents.unreadable_incident(book, intent.incident_id, intent.action) is not None


HEARD_AGAIN = IntentOutcome(IntentState.FAILED, "the node has reported again in the meantime", retryable=True)
"""Retryable: it may die after all."""
BRAKED = IntentOutcome(
    IntentState.FAILED, "a brake tripped before the step started; will be decided again", retryable=True
)


def outlived(book: Book, intent: Intent) -> IntentOutcome | None:
    """Outcome of a planned, not started step that is no longer wanted: an operator closed its incident or took it over, or the dead
    node reports again. None: it is still wanted."""
    incident = book.incidents.get(intent.incident_id)
    action = intent.action
    if intent.state is not IntentState.PLANNED or incident is None:
        return None
    if _of_a_dropped_order(incident, intent):
        return IntentOutcome(IntentState.REFUSED, f"the order was dropped meanwhile: {incident.order_dropped}")
    ends = isinstance(action, _NOT_AFTER_THE_END) or _of_the_dead(action) or _of_its_own_machine(incident, action)
    if (_of_the_dead(action) and not incident.dead) or _of_the_silent(action, incident):
        return HEARD_AGAIN
    if not ends or (incident.open and not incident.acknowledged):
        return None
    how = "taken over" if incident.acknowledged else "closed"
    return IntentOutcome(IntentState.REFUSED, f"the incident was {how} meanwhile: {incident.note}")


def _of_a_dropped_order(incident: Incident, intent: Intent) -> bool:
    """Whether an order that is dropped by now calls for the step: the drain of a node in service, or a step at its machine that the
    incident does not continue with."""
    if not incident.order_dropped or not incident.open:
        return False
    if isinstance(intent.action, Drain):
        return incident.only_ordered and incident.state is IncidentState.OPEN
    current = (
        steps.launch(incident.node, incident.repair_attempt),
        steps.replace(incident.node, incident.repair_attempt),
    )
    return isinstance(intent.action, Launch | Replace) and (incident.only_ordered or intent.step not in current)


def _of_its_own_machine(incident: Incident, action: Action) -> bool:
    """Whether the step terminates the machine that an operator has taken over, not one that was launched for it."""
    mine = isinstance(action, Terminate) and action.instance_id == incident.instance_id
    return mine and incident.acknowledged


def not_taken_here(book: Book, intent: Intent, *, node_orders: bool) -> IntentOutcome | None:
    """Outcome of a planned step for an operator's order alone where the site takes no orders through Holdfast. None: it may be done."""
    incident = book.incidents.get(intent.incident_id)
    if node_orders or intent.state is not IntentState.PLANNED or incident is None or not incident.only_ordered:
        return None
    if not isinstance(intent.action, Drain | Launch | Replace):
        return None
    return IntentOutcome(
        IntentState.REFUSED, "this site takes no such orders through Holdfast (actor.node_orders = false)"
    )


def overtaken(book: Book, intent: Intent, now: datetime) -> IntentOutcome | None:
    """Outcome of a planned, not started step at a node that an operator has since taken for maintenance. None: it may be done."""
    if intent.state is not IntentState.PLANNED or not isinstance(intent.action, AT_NODES):
        return None
    window = window_of(book.windows, intent.action.node, now)
    return IntentOutcome(IntentState.FAILED, in_window(window).text, retryable=True) if window is not None else None


def _of_the_dead(action: Action) -> bool:
    """Whether only the death of a node justifies the step; tasks stuck on a living node also justify a DOWN."""
    return (isinstance(action, SetDown) and action.node_dead) or (isinstance(action, Terminate) and action.fence)


def _of_the_silent(action: Action, incident: Incident) -> bool:
    """Whether it is a step at the machine of a silent node, planned before the node reported again and was sent to validation."""
    if incident.state is not IncidentState.VALIDATING or incident.rung:
        return False
    its_own = (incident.serving_id, incident.instance_id)
    return (
        isinstance(action, Terminate | Replace | Reboot | StopStart) and action.instance_id in its_own
    ) or isinstance(action, Launch)
