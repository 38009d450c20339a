"""Events from the quorum service's record: what happened to which group, for which incident, and when a job was complete again. Pure.

A fold: the position read so far and new records give events and the new position. Both are stored in one transaction, so that each record
becomes events exactly once, even if a process dies in between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from holdfast.model.elastic_jobs.rooms import RoomRecord, run_of
from holdfast.model.event import Event, EventKind
from holdfast.model.ids import incident_of_reason
from holdfast.model.slurm.cluster import Job

_KINDS: Mapping[str, EventKind] = {
    "joined": EventKind.QUORUM_JOINED,
    "lost": EventKind.QUORUM_LOST,
    "back": EventKind.QUORUM_BACK,
    "evicted": EventKind.QUORUM_EVICTED,
    "left": EventKind.QUORUM_LEFT,
    "replaced": EventKind.QUORUM_REPLACED,
    "done": EventKind.QUORUM_DONE,
    "quorum": EventKind.QUORUM_FORMED,
    "omitted": EventKind.QUORUM_OMITTED,
    "closed": EventKind.QUORUM_CLOSED,
}
_WORDS: Mapping[EventKind, str] = {
    EventKind.QUORUM_JOINED: "reported for the first time",
    EventKind.QUORUM_LOST: "fell silent",
    EventKind.QUORUM_BACK: "reports again",
    EventKind.QUORUM_EVICTED: "was shut out",
    EventKind.QUORUM_LEFT: "left",
    EventKind.QUORUM_REPLACED: "was replaced",
    EventKind.QUORUM_DONE: "has done the last step, the training is done",
}


@dataclass(frozen=True, slots=True)
class Loss:
    """A group that was lost, kept until the rendezvous has as many groups as before."""

    groups: int
    """Groups of the last quorum with it."""
    incident_id: str = ""
    """Incident for which it was evicted; empty: none, or not yet."""
    went_on: bool = False
    """The others have met again since."""


@dataclass(frozen=True, slots=True)
class RoomRead:
    """State of a rendezvous between one record and the next."""

    members: tuple[str, ...] = ()
    """Members of the last quorum."""
    losses: Mapping[str, Loss] = field(default_factory=dict)
    """Losses by group."""


@dataclass(frozen=True, slots=True)
class Read:
    """Position up to which the service's record was read."""

    after_id: int = 0
    rooms: Mapping[str, RoomRead] = field(default_factory=dict)


def fold(read: Read, records: Iterable[RoomRecord], jobs: Mapping[int, Job]) -> tuple[Read, tuple[Event, ...]]:
    """Apply new records and return the new position and their events. ``jobs``: Slurm's, so that an event names the job of its group."""
    events: list[Event] = []
    for record in records:
        if record.id <= read.after_id:
            continue
        room, found = _one(read.rooms.get(record.room, RoomRead()), record, jobs)
        rooms = {**read.rooms, record.room: room}
        if any(event.kind is EventKind.QUORUM_CLOSED for event in found):
            del rooms[record.room]
        read = Read(record.id, rooms)
        events += found
    return read, tuple(events)


def _one(room: RoomRead, record: RoomRecord, jobs: Mapping[int, Job]) -> tuple[RoomRead, list[Event]]:
    kind = _KINDS.get(record.kind)
    if kind is None:
        return room, []  # of a newer service
    if kind is EventKind.QUORUM_FORMED:
        return _formed(room, record)
    if kind is EventKind.QUORUM_CLOSED:
        return room, [_event(record, kind, f"rendezvous {record.room} was closed")]
    if kind is EventKind.QUORUM_OMITTED:
        return room, [_event(record, kind, f"rendezvous {record.room}: {record.reason}")]
    incident = incident_of_reason(record.reason) if kind is EventKind.QUORUM_EVICTED else None
    text = f"rendezvous {record.room}: group {record.who} {_WORDS[kind]}" + (
        f": {record.reason}" if record.reason else ""
    )
    event = _event(record, kind, text, incident)
    run = run_of(record.who)
    job = jobs.get(run.job_id) if run is not None else None
    if run is not None and job is not None and job.restarts == run.restarts and record.at >= job.key.submit_time:
        event = replace(event, job=job.key.text)
    loss = room.losses.get(record.who.partition("~")[0])
    if kind is EventKind.QUORUM_EVICTED and loss is not None and loss.went_on:
        event = replace(event, detail={**event.detail, "went_on": True})
    return _moved(room, kind, record.who, incident or ""), [event]


def _moved(room: RoomRead, kind: EventKind, who: str, incident_id: str) -> RoomRead:
    """The rendezvous with its losses updated."""
    group, losses = who.partition("~")[0], dict(room.losses)
    mine = losses.get(group)
    if kind is EventKind.QUORUM_BACK and mine is not None and not mine.incident_id:
        del losses[group]
    elif kind in (EventKind.QUORUM_LOST, EventKind.QUORUM_EVICTED) and (mine is not None or who in room.members):
        groups = max([len(room.members), *(loss.groups for loss in losses.values())])
        known = mine or Loss(groups)
        losses[group] = replace(known, incident_id=incident_id or known.incident_id)
    elif kind is EventKind.QUORUM_LEFT and who in room.members:
        losses = {name: replace(loss, groups=loss.groups - 1) for name, loss in losses.items()}  # no group waits for it
    return replace(room, losses=losses)


def _formed(room: RoomRead, record: RoomRecord) -> tuple[RoomRead, list[Event]]:
    """Events of a new quorum, if its members changed or a loss ends with it. One event for each incident, else one."""
    before, after = room.losses, {}
    size, incidents = len(record.members), dict[str, bool]()
    for group, loss in before.items():
        full = size >= loss.groups
        if loss.incident_id and (full or not loss.went_on):
            incidents[loss.incident_id] = incidents.get(loss.incident_id, True) and full
        if not full:
            after[group] = replace(loss, went_on=True)
    now = RoomRead(record.members, after)
    if not incidents and record.members == room.members:
        return now, []
    events = [_formed_event(record, incident, full) for incident, full in sorted(incidents.items())]
    return now, events or [_formed_event(record, None, bool(before) and not after)]


def _formed_event(record: RoomRecord, incident_id: str | None, full: bool) -> Event:
    size = len(record.members)
    groups = f"{size} group{'' if size == 1 else 's'}"
    again = f"{groups}, as many as before the loss" if full else f"{groups} continue"
    text = f"rendezvous {record.room}: {again} (quorum {record.quorum_id}, step {record.step})"
    event = _event(record, EventKind.QUORUM_FORMED, text, incident_id)
    detail = {"quorum_id": record.quorum_id, "step": record.step, "groups": size, "full": full}
    return replace(event, detail={**event.detail, **detail})


def _event(record: RoomRecord, kind: EventKind, text: str, incident_id: str | None = None) -> Event:
    detail = {"room": record.room, "record": record.id} | ({"who": record.who} if record.who else {})
    return Event(record.at, kind, incident_id, text=text, detail=detail)
