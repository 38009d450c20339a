"""The controller's note of its position in the quorum service's record; it may come from another release or be damaged."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any, TypeVar

from holdfast.decisions.elastic.ledger import Loss, Read, RoomRead
from holdfast.model.event import EventKind
from holdfast.ports import Store
from holdfast.unknown import set_aside

log = logging.getLogger(__name__)

NOTE = "quorum.read"
"""Name of the note in the store."""
_KINDS = tuple(kind for kind in EventKind if kind.name.startswith("QUORUM_"))
_PAGE = 5000
T = TypeVar("T")


def write_note(read: Read) -> str:
    """Serialize for :func:`read_note`."""
    return json.dumps(asdict(read))


def read_note(note: str | None) -> Read | None:
    """Parse a note; None: it cannot be read. Fields that this release does not know are ignored."""
    if note is None:
        return Read()
    try:
        document: Any = json.loads(note)
        after_id = document["after_id"]
        rooms = {name: _room(room) for name, room in document["rooms"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return Read(after_id, rooms) if type(after_id) is int else None


def restored(store: Store, note: str, now: datetime, fence: int) -> None:
    """Move an unreadable note aside, under another name, and start a new one. The events of the store show the position, so that no event
    is recorded twice; which groups a rendezvous misses is then not known. Raises OutsideError, Stale, LeaderFencedOff."""
    kept = f"{NOTE}.unreadable-{now:%Y%m%dT%H%M%SZ}"
    store.set_note(kept, note)
    read = Read(_last_recorded(store))
    do = f"nothing; remove the note {kept} from the store's table notes"
    store.record_once(NOTE, note, write_note(read), (), fence)
    set_aside("notes", NOTE, f"kept as {kept}")
    log.error(
        "event=note_unreadable note=%s kept_as=%s effect='read on after record %d' do=%r", NOTE, kept, read.after_id, do
    )


def _last_recorded(store: Store) -> int:
    """Number of the newest record that has an event in the store."""
    last = after_id = 0
    while True:
        events = store.events(after_id=after_id, kinds=_KINDS, limit=_PAGE)
        numbers = [number for event in events if type(number := event.detail.get("record")) is int]
        last = max([last, *numbers])
        if len(events) < _PAGE:
            return last
        after_id = max(event.id for event in events)


def _room(document: Mapping[str, Any]) -> RoomRead:
    losses = {group: _loss(loss) for group, loss in document["losses"].items()}
    members = document["members"]
    if not isinstance(members, list) or not all(isinstance(name, str) for name in members):
        raise ValueError("members")
    return RoomRead(tuple(members), losses)


def _loss(document: Mapping[str, Any]) -> Loss:
    known = {field.name for field in fields(Loss)}
    loss = Loss(**{name: value for name, value in document.items() if name in known})
    if type(loss.groups) is not int or not isinstance(loss.incident_id, str):
        raise ValueError("loss")
    return loss
