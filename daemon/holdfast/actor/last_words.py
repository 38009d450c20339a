"""Last liveness check of a node: the actor itself connects to it right before an irreversible step."""

from __future__ import annotations

from holdfast.actor.adapters import Outside, jobs_on
from holdfast.actor.second_look import outlived
from holdfast.decisions.death import evidence
from holdfast.model.actions.action import (
    LIVES,
    Action,
    Intent,
    IntentState,
    Launch,
    Reboot,
    Replace,
    SetDown,
    StopStart,
    Terminate,
)
from holdfast.model.book import Book
from holdfast.model.errors import NotFound, OutsideError
from holdfast.model.incidents.incident import Incident, IncidentKind
from holdfast.ports import IntentOutcome

_LAST_WORDS_S = 1.0
"""How long a node that is thought dead has to answer a connection before an irreversible step."""
ANSWERS = IntentOutcome(
    IntentState.FAILED, "the node answers a connection: it lives", retryable=True, result={LIVES: True}
)
POWERED = IntentOutcome(
    IntentState.FAILED, "its power was off, and is on again: it may be booting", retryable=True, result={LIVES: True}
)
NOT_ASKED = IntentOutcome(
    IntentState.FAILED, "the last check of the node failed: the actor has no file descriptor left", retryable=True
)
NOT_SHOWN = IntentOutcome(
    IntentState.FAILED, "the last check of the node failed: Slurm does not report its address", retryable=True
)
_ON = frozenset({"pending", "running"})


def last_words(book: Book, intent: Intent, outside: Outside) -> IntentOutcome | None:
    """Check once more, right before a step that only a node's silence justifies, that the node does not answer. None: it does not answer,
    or the step has another reason. Setting a node DOWN and fencing it are always checked, because both stop what runs there."""
    incident, action = book.incidents.get(intent.incident_id), intent.action
    if not isinstance(action, SetDown | Terminate | Replace | Reboot | StopStart | Launch):
        return None
    if incident is not None and _silence_alone(incident, action):
        if (ended := outlived(book, intent)) is not None:
            return ended
        if not isinstance(action, SetDown) and evidence.shown_off(book, incident) and _on_again(incident, outside):
            return POWERED
    elif not _stops_what_runs(action):
        return None
    return _asked(action, outside)


def _asked(
    action: SetDown | Terminate | Replace | Reboot | StopStart | Launch, outside: Outside
) -> IntentOutcome | None:
    try:
        node = outside.scheduler.node(action.node)
    except NotFound:
        return None  # the step itself reads Slurm and reports what it needs
    except OutsideError:
        return NOT_SHOWN if _stops_what_runs(action) else None
    reached = outside.reach({action.node: (node.address, node.port)}, _LAST_WORDS_S)
    if action.node in reached.untried:
        return NOT_ASKED
    if action.node not in reached.answered:
        return None
    if isinstance(action, Terminate) and _seen_off(action.instance_id, outside):
        return None
    if isinstance(action, SetDown) and not action.node_dead and _nothing_runs(action.node, outside):
        return None
    return ANSWERS


def _silence_alone(incident: Incident, action: Action) -> bool:
    """Whether, according to the store, the node's silence is the only reason for the step."""
    if isinstance(action, Terminate) and action.instance_id != incident.serving_id:
        return False
    return incident.dead or (incident.kind is IncidentKind.SILENCE and not incident.repair_attempt)


def _stops_what_runs(action: Action) -> bool:
    """Whether the step may be done while a job runs on the node."""
    return isinstance(action, SetDown) or (isinstance(action, Terminate) and action.fence)


def _nothing_runs(node: str, outside: Outside) -> bool:
    """Whether all that is left there is ending: tasks stuck on a living node. False where Slurm does not answer."""
    try:
        return all(job.state == "COMPLETING" for job in jobs_on(node, outside))
    except OutsideError:
        return False


def _on_again(incident: Incident, outside: Outside) -> bool:
    """Whether the provider shows the machine powered on. False where it does not answer: the step itself needs the provider."""
    try:
        return outside.provider.instance(incident.serving_id).state in _ON
    except OutsideError:
        return False


def _seen_off(instance_id: str, outside: Outside) -> bool:
    """Whether the provider shows the machine off now: then another machine that replaced it answers at the node's address."""
    try:
        return outside.provider.instance(instance_id).state in evidence.OFF
    except NotFound:
        return True
    except OutsideError:
        return False
