"""A node's history from its events. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from holdfast.api.shown.history_shapes import Entry, HistoryEntryShape
from holdfast.decisions.common.node_drains import DrainedBy
from holdfast.model.event import BY_OTHERS, Event, EventKind
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.slurm.hostlist import names_node

_K = EventKind
SHARED = (_K.NODES_FIRST_READ, _K.NODE_DRAINED_BY_OTHERS, _K.NODE_DOWN, _K.NODE_RESUMED_BY_OTHERS, _K.OPERATOR)
"""Kinds of which one event may be about many nodes."""
_STEPS = frozenset(
    {
        *("Reboot", "StopStart", "Replace", "Launch", "Terminate", "Assign", "SetDown", "ReportFault"),
        *("DrainForOperator", "ReleaseForOperator", "TakeOverDrain", "ReplaceOrder"),
    }
)
"""Steps at the node that its history shows; a drain and an undrain of Holdfast's are seen by their effect."""
_VERBS = frozenset({"reset_gpu", "end_stuck_job"})
"""Orders to the node's agent that it shows."""
_ABOUT: Mapping[EventKind, Entry] = {
    _K.NODES_FIRST_READ: Entry.OUT,
    _K.NODE_DRAINED_BY_OTHERS: Entry.OUT,
    _K.NODE_DOWN: Entry.OUT,
    _K.NODE_OUT: Entry.OUT,
    _K.NODE_RESUMED_BY_OTHERS: Entry.BACK,
    _K.NODE_RETURNED: Entry.BACK,
    _K.NODE_MACHINE: Entry.MACHINE,
    _K.INSTANCE_UP: Entry.MACHINE,
    _K.INCIDENT_OPENED: Entry.INCIDENT,
    _K.INCIDENT_STATE: Entry.INCIDENT,
    _K.INCIDENT_CLOSED: Entry.INCIDENT,
    _K.NODE_DEAD: Entry.INCIDENT,
    _K.NODE_VALIDATED: Entry.INCIDENT,
    _K.FINDING_JOINED: Entry.CHECK,
    _K.JOB_HURT: Entry.JOB,
    _K.JOB_STOPPED: Entry.JOB,
    _K.JOB_RESUMED: Entry.JOB,
    _K.ACTION_DONE: Entry.STEP,
    _K.ACTION_FAILED: Entry.STEP,
    _K.ACTION_REFUSED: Entry.STEP,
    _K.OPERATOR: Entry.OPERATOR,
}
KINDS = tuple(_ABOUT)
"""Kinds of events that a node's history is made of."""
_ENDS = {_K.ACTION_DONE: "done", _K.ACTION_FAILED: "failed", _K.ACTION_REFUSED: "not done"}
_NEAR = timedelta(minutes=5)
"""A return by others is recorded twice where an incident waits for it; the later record of the two within this time says no more."""
_OF_WINDOWS = frozenset({"maintain", "end_maintenance"})


def entries(events: Iterable[Event], node: str) -> list[HistoryEntryShape]:
    """The history that these events are, oldest first: each thing once, in one sentence, with how long the node was out."""
    mine = sorted((one for e in events if (one := _of_node(e, node)) is not None), key=lambda e: (e.at, e.id))
    told = [e for e in mine if _shown(e)]
    kept = [e for e in told if not _told_twice(e, told)]
    return _with_durations([_entry(e) for e in kept])


def _of_node(event: Event, node: str) -> Event | None:
    """The event as it is about this node: of one about many, its part. None: it does not name the node."""
    if event.node == node or (event.node is None and event.incident_id is not None):
        return event
    if event.node is not None:
        return None
    if event.kind is _K.OPERATOR:
        named = event.detail.get("verb") in _OF_WINDOWS and names_node(str(event.detail.get("target")), node)
        return event if named else None
    if not names_node(str(event.detail.get("nodes", "")), node):
        return None
    return replace(
        event, node=node, detail={**event.detail, **_part(event.detail, node), "many": event.detail.get("count")}
    )


def _part(detail: Mapping[str, Any], node: str) -> Mapping[str, Any]:
    """What an event of many nodes says of this one; empty: its reason was one of too many."""
    groups = detail.get("groups")
    found = (g for g in (groups if isinstance(groups, list) else ()) if isinstance(g, Mapping))
    return next((g for g in found if names_node(str(g.get("nodes", "")), node)), {})


def _shown(event: Event) -> bool:
    detail = event.detail
    if event.kind is _K.INCIDENT_STATE:  # of its states, the one that a person had to end
        return detail.get("to") == IncidentState.AWAITING_HUMAN
    if event.kind in _ENDS:
        return detail.get("kind") in _STEPS or detail.get("verb") in _VERBS
    if event.kind is _K.NODE_OUT:  # what others did has an event of its own
        return detail.get("by") not in (DrainedBy.FOREIGN, DrainedBy.SLURM)
    return True


def _told_twice(event: Event, told: Sequence[Event]) -> bool:
    if event.kind is not _K.NODE_RETURNED or event.detail.get(BY_OTHERS) is not True:
        return False
    return any(e.kind is _K.NODE_RESUMED_BY_OTHERS and abs(e.at - event.at) <= _NEAR for e in told)


def _entry(event: Event) -> HistoryEntryShape:
    detail = event.detail
    return HistoryEntryShape(
        id=event.id,
        at=event.at,
        kind=event.kind,
        about=_ABOUT.get(event.kind, Entry.OTHER),
        who=_who(event),
        text=_text(event),
        reason=str(detail.get("reason") or ""),
        category=str(detail.get("category") or ""),
        ticket=str(detail.get("ticket") or ""),
        incident_id=event.incident_id or "",
        job=event.job or "",
        lasted_s=None,
    )


_BY_USERS = frozenset({_K.NODES_FIRST_READ, _K.NODE_DRAINED_BY_OTHERS, _K.NODE_DOWN})


def _who(event: Event) -> str:
    detail = event.detail
    if event.kind is _K.OPERATOR:
        return str(detail.get("who") or "")
    if event.kind in _BY_USERS:
        return "Slurm" if detail.get("by") == "slurm" else str(detail.get("who") or detail.get("user") or "")
    if event.kind is _K.NODE_RESUMED_BY_OTHERS or detail.get(BY_OTHERS) is True:
        return ""
    if event.kind is _K.JOB_STOPPED:
        return {"slurm": "Slurm", "others": ""}.get(str(detail.get("by")), "Holdfast")
    return "" if event.kind in (_K.NODE_MACHINE, _K.INSTANCE_UP) else "Holdfast"


def _text(event: Event) -> str:
    detail = event.detail
    if event.kind is _K.NODES_FIRST_READ:
        return f"out of service when Holdfast first read Slurm: {_what(event)}"
    if detail.get("many"):
        back = "back in service; it was " if event.kind is _K.NODE_RESUMED_BY_OTHERS else ""
        return f"{back}{_what(event)} (with {int(detail['many']) - 1} other nodes at once)"
    if event.kind is _K.OPERATOR and detail.get("verb") in _SAID:
        return _SAID[str(detail["verb"])].format(reason=detail.get("reason") or "no reason given")
    if event.kind in _ENDS:
        return f"{_step(detail)} {_ENDS[event.kind]}: {event.text}"
    prefix = {
        _K.INCIDENT_OPENED: "incident opened: ",
        _K.INCIDENT_STATE: "needs an operator: ",
        _K.INCIDENT_CLOSED: "incident closed: ",
    }.get(event.kind, "")
    return f"{prefix}{event.text}"


def _step(detail: Mapping[str, Any]) -> str:
    return str(detail.get("verb") or _WORDS.get(str(detail.get("kind")), detail.get("kind")))


_SAID = {
    "note_node": "note: {reason}",
    "drain_node": "ordered to drain it: {reason}",
    "release_node": "ordered to release it: {reason}",
    "replace_node": "ordered to replace its machine: {reason}",
}
"""What an operator's order was, by its verb."""
_WORDS = {
    "DrainForOperator": "ordered drain",
    "ReleaseForOperator": "ordered release",
    "TakeOverDrain": "taking over the drain",
    "ReplaceOrder": "ordered replacement",
    "Reboot": "reboot",
    "StopStart": "stop and start",
    "Replace": "replacement",
    "Launch": "launch of another machine",
    "Terminate": "end of the machine",
    "Assign": "handing over of the node's name",
    "SetDown": "setting it DOWN",
    "ReportFault": "report to the provider",
}


def _what(event: Event) -> str:
    """Of an event of many nodes: what it was of this one."""
    detail = event.detail
    what = "DOWN" if detail.get("kind", event.kind) == _K.NODE_DOWN else "drained"
    who = "Slurm" if detail.get("by") == "slurm" else detail.get("user") or "another user"
    return f"{what} by {who}: {detail.get('reason') or 'no reason is on record'}"


def _with_durations(found: list[HistoryEntryShape]) -> list[HistoryEntryShape]:
    """How long the node was out from each entry that took it out until it was back. A drain that takes the place of another begins no
    other time out of service, but is timed from its own start."""
    going: list[HistoryEntryShape] = []
    for each in found:
        if each.about is Entry.OUT:
            going.append(each)
        elif each.about is Entry.BACK:
            for out in going:
                out.lasted_s = round((each.at - out.at).total_seconds(), 1)
            going = []
    return found
