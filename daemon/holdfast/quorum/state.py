"""The quorum service's database (SQLite or PostgreSQL): open rendezvous and the record of their events. It is separate from the store,
because the service accepts input from jobs: it must not write what the controller decides on or the actor executes.

Written only when members change, never per step: a rendezvous causes no database load while training continues."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import JSON, Column, Connection, Index, MetaData, Table, delete, func, inspect, select, text

from holdfast.quorum.identity import GroupIdentity
from holdfast.quorum.nouns import Departure, GoneMember, Quorum, QuorumMember, RendezvousSnapshot, RoomEvent, Rules
from holdfast.store.columns import BigId, SafeText, UtcDateTime
from holdfast.store.engines import parse_url, reader_engine, writer_engine
from holdfast.store.failures import translated
from holdfast.store.rows import upsert
from holdfast.unknown import read_word
from holdfast_checks.aside import FilesSetAside

log = logging.getLogger(__name__)
T = TypeVar("T")
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError)
_EFFECT = "the rendezvous is not open; its job's groups get a new one when they start again"
_DO = "restart the job's groups, then: DELETE FROM quorum_unreadable in the database that quorum.store names"
metadata = MetaData()
BATCH = 2000
"""Records deleted in one transaction, which limits how long the rendezvous and the controller wait."""

unreadable = Table(
    "quorum_unreadable",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("name", SafeText, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("reason", SafeText, nullable=False),
    Column("document", SafeText, nullable=False),
)
"""Rendezvous that could not be read: set aside, so that one of the same name can be opened."""

rooms = Table(
    "quorum_rooms",
    metadata,
    Column("name", SafeText, primary_key=True),
    Column("document", JSON, nullable=False),
)

events = Table(
    "quorum_events",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("room", SafeText, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("document", JSON, nullable=False),
    Index("quorum_events_room", "room", "id"),
    Index("quorum_events_at", "at"),
    sqlite_autoincrement=True,  # ids are never reused, or a reader that continues from one would miss events
)


@dataclass(frozen=True, slots=True)
class StoredRendezvous:
    """A rendezvous as stored."""

    name: str
    port: int
    """Kept across restarts, so that the job finds it; 0: chosen when it is opened."""
    addresses: tuple[str, ...]
    """Empty: members prove that they know the token; else only members at these addresses may join, without proof."""
    snapshot: RendezvousSnapshot
    opening: str = ""
    """Part of what its token is derived from: new each time a rendezvous of this name is opened. Not secret."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A stored event of a rendezvous."""

    id: int
    room: str
    at: datetime
    event: RoomEvent


class QuorumStore:
    """The service's database. Every method may raise Unavailable, or Rejected for what the database refuses. Thread-safe."""

    def __init__(self, url: str) -> None:
        """Raises ConfigError for an invalid URL, Unavailable."""
        self._engine = writer_engine(parse_url(url))
        with translated(), self._engine.begin() as connection:
            metadata.create_all(connection)
        self._readers = reader_engine(parse_url(url))

    def adopt(self, moved: Mapping[str, Any]) -> int:
        """Import what :func:`moving` exported from another database; no-op if this one has been used. Returns the number of rendezvous.

        Raises ValueError, TypeError, KeyError for malformed input."""
        kept = [{"name": _text(name), "document": document} for name, document in moved["rooms"]]
        record = [
            {"id": _count(number), "room": _text(room), "at": datetime.fromisoformat(at), "document": document}
            for number, room, at, document in moved["events"]
        ]
        with translated(), self._engine.begin() as connection:
            used = connection.execute(select(func.count()).select_from(events)).scalar_one()
            if used or connection.execute(select(func.count()).select_from(rooms)).scalar_one():
                return 0
            if kept:
                connection.execute(rooms.insert(), kept)
            if record:
                connection.execute(events.insert(), record)
                if connection.dialect.name == "postgresql":  # continue the ids, as SQLite does automatically
                    last = max(each["id"] for each in record)
                    connection.execute(
                        text("SELECT setval(pg_get_serial_sequence('quorum_events', 'id'), :last)"), {"last": last}
                    )
        return len(kept)

    def close(self) -> None:
        self._engine.dispose()
        self._readers.dispose()

    def save(self, kept: StoredRendezvous, happened: Iterable[tuple[datetime, RoomEvent]] = ()) -> None:
        """Store the rendezvous and its new events in one transaction."""
        with translated(), self._engine.begin() as connection:
            upsert(connection, rooms, [{"name": kept.name, "document": encode(kept)}])
            _append(connection, kept.name, happened)

    def record(self, room: str, happened: Iterable[tuple[datetime, RoomEvent]]) -> None:
        """Store events only; the rendezvous itself did not change."""
        with translated(), self._engine.begin() as connection:
            _append(connection, room, happened)

    def load(self, at: datetime) -> tuple[StoredRendezvous, ...]:
        """Open rendezvous. One that cannot be read is set aside, with ``at`` as the time."""
        read: list[StoredRendezvous] = []
        with translated(), self._engine.begin() as connection:
            for row in connection.execute(select(rooms).order_by(rooms.c.name)).all():
                try:
                    read.append(decode(row.name, row.document))
                except _UNREADABLE as error:
                    _set_aside(connection, row.name, row.document, f"{type(error).__name__}: {error}"[:300], at)
        return tuple(read)

    def set_aside(self) -> FilesSetAside:
        """Count and age of the rendezvous that were set aside and not removed by an operator yet."""
        query = select(func.count(), func.min(unreadable.c.at))
        with translated(), self._readers.begin() as connection:
            count, since = connection.execute(query).one()
        return FilesSetAside(count, None if since is None else since.timestamp())

    def drop(self, room: str, at: datetime) -> None:
        """Delete a closed rendezvous; its record stays and gets a ``closed`` event."""
        with translated(), self._engine.begin() as connection:
            connection.execute(delete(rooms).where(rooms.c.name == room))
            _append(connection, room, [(at, RoomEvent("closed"))])

    def happened(self, *, after_id: int = 0, room: str | None = None, limit: int = 1000) -> tuple[Recorded, ...]:
        """Stored events after this id, oldest first."""
        query = select(events).where(events.c.id > after_id).order_by(events.c.id).limit(limit)
        if room is not None:
            query = query.where(events.c.room == room)
        with translated(), self._readers.begin() as connection:
            found = connection.execute(query).all()
        return tuple(Recorded(row.id, row.room, row.at, _event(row.document, row.id)) for row in found)

    def prune(self, before: datetime) -> int:
        """Delete older records, at most :data:`BATCH` of them. Returns their number."""
        some = select(events.c.id).where(events.c.at < before).limit(BATCH)
        with translated(), self._engine.begin() as connection:
            return int(connection.execute(delete(events).where(events.c.id.in_(some))).rowcount)


def moving(url: str) -> dict[str, Any]:
    """Export the rendezvous and newest events of a database as JSON: earlier releases kept them in the controller's. Read-only.

    Raises Unavailable, ConfigError."""
    found = parse_url(url)
    if found.get_backend_name() == "sqlite" and not Path(found.database or "").exists():
        return {"rooms": [], "events": []}
    engine = reader_engine(found)
    try:
        with translated(), engine.begin() as connection:
            if not inspect(connection).has_table(rooms.name):
                return {"rooms": [], "events": []}
            kept = [[row.name, row.document] for row in connection.execute(select(rooms).order_by(rooms.c.name))]
            newest = connection.execute(select(events).order_by(events.c.id.desc()).limit(BATCH)).all()
    finally:
        engine.dispose()
    record = [[row.id, row.room, row.at.isoformat(), row.document] for row in reversed(newest)]
    return {"rooms": kept, "events": record}


def _append(connection: Connection, room: str, happened: Iterable[tuple[datetime, RoomEvent]]) -> None:
    found = [{"room": room, "at": at.astimezone(UTC), "document": asdict(event)} for at, event in happened]
    if found:
        connection.execute(events.insert(), found)


def _set_aside(connection: Connection, name: str, document: Any, reason: str, at: datetime) -> None:
    as_text = document if isinstance(document, str) else json.dumps(document)
    row = {"name": name, "at": at.astimezone(UTC), "reason": reason, "document": as_text}
    connection.execute(unreadable.insert(), [row])
    connection.execute(delete(rooms).where(rooms.c.name == name))
    _append(connection, name, [(at, RoomEvent("closed"))])
    log.error("event=room_unreadable room=%s reason=%r effect=%r do=%r", name, reason, _EFFECT, _DO)


def _event(document: Any, number: int) -> RoomEvent:
    """Decode an event, without unknown fields. One that cannot be read becomes kind ``unreadable``, so that readers continue."""
    try:
        event = _of_type(RoomEvent, document)
        _check(isinstance(event.kind, str) and isinstance(event.who, str) and isinstance(event.reason, str))
        _check(type(event.quorum_id) is int and type(event.step) is int)
        return replace(event, members=tuple(_text(name) for name in event.members))
    except _UNREADABLE as error:
        do = "nothing; the record of the rendezvous lacks it"
        log.error(
            "event=room_event_unreadable id=%d reason=%r effect='passed over' do=%r", number, str(error)[:300], do
        )
        return RoomEvent("unreadable")


def encode(kept: StoredRendezvous) -> dict[str, Any]:
    """Encode a rendezvous as a JSON document."""
    s = kept.snapshot
    return {
        "port": kept.port,
        "opening": kept.opening,
        "addresses": list(kept.addresses),
        "rules": asdict(s.rules),
        "last": None if s.last is None else {"id": s.last.id, "members": [asdict(m) for m in s.last.members]},
        "next_id": s.next_id,
        "gone": {name: [gone.why.value, gone.reason] for name, gone in s.gone.items()},
        "spares": sorted(s.spares),
        "done": s.done,
        "newest": s.newest,
        "gone_since_s": s.gone_since_s,
    }


def decode(name: str, document: Any) -> StoredRendezvous:
    """The reverse of :func:`encode`. Fields of a newer release are ignored. Raises ValueError, TypeError, KeyError, AttributeError."""
    last, port, opening, rules = document["last"], document["port"], document["opening"], document["rules"]
    _check(type(port) is int and 0 <= port < 65536, "port")
    _check(isinstance(opening, str), "opening")
    snapshot = RendezvousSnapshot(
        _rules(rules),
        None if last is None else Quorum(_count(last["id"]), tuple(_member(m) for m in last["members"])),
        _count(document["next_id"]),
        {
            who: GoneMember(read_word(Departure, why, "Gone.why") or Departure.EVICTED, _text(reason))
            for who, (why, reason) in document["gone"].items()
        },
        frozenset(_text(group) for group in document["spares"]),
        document.get("done", False) is True,  # missing in documents of earlier releases
        {name: _count(restarts) for name, restarts in document.get("newest", {}).items()},
        {name: float(at_s) for name, at_s in document.get("gone_since_s", {}).items() if name in document["gone"]},
    )
    if snapshot.last is not None:  # ids only grow
        snapshot = replace(snapshot, next_id=max(snapshot.next_id, snapshot.last.id + 1))
    return StoredRendezvous(name, port, tuple(_text(address) for address in document["addresses"]), snapshot, opening)


def _rules(document: Any) -> Rules:
    rules = _of_type(Rules, document)
    _check(all(type(value) in (int, float) for value in asdict(rules).values()), "rules")
    return rules


def _member(document: Any) -> QuorumMember:
    identity = _of_type(GroupIdentity, document["identity"])
    _check(all(value is None or isinstance(value, str) for value in asdict(identity).values()), "identity")
    member = replace(_of_type(QuorumMember, document), identity=identity)
    _count(member.step)
    return member


def _of_type(noun: type[T], document: Any) -> T:
    """Build the data class, ignoring fields that this release does not know."""
    known = {field.name for field in fields(noun)}  # type: ignore[arg-type]
    return noun(**{name: value for name, value in document.items() if name in known})


def _check(fine: bool, what: str = "a field") -> None:
    if not fine:
        raise ValueError(f"{what} makes no sense")


def _text(value: Any) -> str:
    _check(isinstance(value, str), "a text")
    return str(value)


def _count(value: Any) -> int:
    _check(type(value) is int and value >= 0, "a count")
    return int(value)
