"""Rooms and their record in the controller's database, in two tables of their own: SQLite or PostgreSQL, as the store is.

Written only when members change, never per step: a room costs the database nothing while training goes on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, Column, Connection, Index, MetaData, Table, delete, select

from holdfast.quorum.identity import Identity
from holdfast.quorum.nouns import Gone, Member, Quorum, RoomEvent, Rules, Snapshot, Why
from holdfast.store.columns import BigId, SafeText, UtcDateTime
from holdfast.store.engines import parse_url, reader_engine, writer_engine
from holdfast.store.failures import translated
from holdfast.store.rows import upsert

metadata = MetaData()
_BATCH = 2000
"""Records deleted in one transaction: the rooms and the controller wait for no more than that."""

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
    sqlite_autoincrement=True,  # a number is never given again, or who reads on from one would miss events
)


@dataclass(frozen=True, slots=True)
class Kept:
    """A room as it is written down."""

    name: str
    port: int
    """The same after a restart, so that the job finds it; 0: it gets one when it is opened."""
    addresses: tuple[str, ...]
    """Empty: members prove that they know the room's token; else only these may come in, and need no proof."""
    snapshot: Snapshot
    opening: str = ""
    """Part of what its token is made from: another one each time that a room of this name is opened. No secret."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event of a room as it stands in the record."""

    id: int
    room: str
    at: datetime
    event: RoomEvent


class State:
    """Every method may raise Unavailable, or Rejected for what the database refuses. Safe to use from many threads."""

    def __init__(self, url: str) -> None:
        """Raises ConfigError for a URL that is none, Unavailable."""
        self._engine = writer_engine(parse_url(url))
        with translated(), self._engine.begin() as connection:
            metadata.create_all(connection)
        self._readers = reader_engine(parse_url(url))

    def close(self) -> None:
        self._engine.dispose()
        self._readers.dispose()

    def save(self, kept: Kept, happened: Iterable[tuple[datetime, RoomEvent]] = ()) -> None:
        """The room and what happened in it, in one transaction."""
        with translated(), self._engine.begin() as connection:
            upsert(connection, rooms, [{"name": kept.name, "document": encode(kept)}])
            _append(connection, kept.name, happened)

    def record(self, room: str, happened: Iterable[tuple[datetime, RoomEvent]]) -> None:
        """What happened, where the room itself did not change."""
        with translated(), self._engine.begin() as connection:
            _append(connection, room, happened)

    def load(self) -> tuple[Kept, ...]:
        with translated(), self._engine.begin() as connection:
            found = connection.execute(select(rooms).order_by(rooms.c.name)).all()
        return tuple(decode(row.name, row.document) for row in found)

    def drop(self, room: str, at: datetime) -> None:
        """The room is closed; its record stays, and says so."""
        with translated(), self._engine.begin() as connection:
            connection.execute(delete(rooms).where(rooms.c.name == room))
            _append(connection, room, [(at, RoomEvent("closed"))])

    def happened(self, *, after_id: int = 0, room: str | None = None, limit: int = 1000) -> tuple[Recorded, ...]:
        """The record from there on, oldest first."""
        query = select(events).where(events.c.id > after_id).order_by(events.c.id).limit(limit)
        if room is not None:
            query = query.where(events.c.room == room)
        with translated(), self._readers.begin() as connection:
            found = connection.execute(query).all()
        return tuple(Recorded(row.id, row.room, row.at, _event(row.document)) for row in found)

    def prune(self, before: datetime) -> int:
        """Delete older records, in small transactions. Returns their number."""
        some = select(events.c.id).where(events.c.at < before).limit(_BATCH)
        gone = 0
        while True:
            with translated(), self._engine.begin() as connection:
                count = connection.execute(delete(events).where(events.c.id.in_(some))).rowcount
            gone += count
            if count < _BATCH:
                return gone


def _append(connection: Connection, room: str, happened: Iterable[tuple[datetime, RoomEvent]]) -> None:
    found = [{"room": room, "at": at.astimezone(UTC), "document": asdict(event)} for at, event in happened]
    if found:
        connection.execute(events.insert(), found)


def _event(document: dict[str, Any]) -> RoomEvent:
    return replace(RoomEvent(**document), members=tuple(document["members"]))


def encode(kept: Kept) -> dict[str, Any]:
    """As a JSON document."""
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
    }


def decode(name: str, document: dict[str, Any]) -> Kept:
    """The reverse of :func:`encode`."""
    last = document["last"]
    snapshot = Snapshot(
        Rules(**document["rules"]),
        None if last is None else Quorum(last["id"], tuple(_member(m) for m in last["members"])),
        document["next_id"],
        {who: Gone(Why(why), reason) for who, (why, reason) in document["gone"].items()},
        frozenset(document["spares"]),
        document.get("done", False),  # a room from before there was such a thing is not
    )
    return Kept(name, document["port"], tuple(document["addresses"]), snapshot, document["opening"])


def _member(document: dict[str, Any]) -> Member:
    return Member(**{**document, "identity": Identity(**document["identity"])})
