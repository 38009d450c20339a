"""Commit a cycle's change: all or nothing, under the leader's fence."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, select

from holdfast.model.book import Change
from holdfast.model.errors import Rejected, Stale
from holdfast.model.event import Event
from holdfast.store import nodes, rows
from holdfast.store import tables as t
from holdfast.store.books import NODES_SINCE
from holdfast.store.codec import encode
from holdfast.store.intents import check_fence


def commit(connection: Connection, change: Change, fence: int, at: datetime | None) -> None:
    """``at``: time of the change, as far as it is known.

    Raises LeaderFencedOff, Stale (an operator was faster), Rejected (an intent's key exists)."""
    check_fence(connection, fence)
    _refuse_stale(connection, change)
    rows.upsert(connection, t.incidents, [rows.incident_row(i) for i in change.incidents])
    _place(connection, change)
    rows.upsert(connection, t.recoveries, [rows.recovery_row(r, at) for r in change.recoveries])
    _plan(connection, change)
    _marks(connection, change)
    nodes.put(connection, change.nodes, at)
    _brakes(connection, change)
    _job_ends(connection, change)
    if change.nodes_since is not None:
        rows.upsert(connection, t.notes, [{"key": NODES_SINCE, "value": change.nodes_since.isoformat()}])
    rows.append(connection, list(change.events))


def record_once(
    connection: Connection, name: str, before: str | None, after: str, events: tuple[Event, ...], fence: int
) -> None:
    """Raises LeaderFencedOff; Stale when the note is not what it was."""
    check_fence(connection, fence)
    if connection.execute(select(t.notes.c.value).where(t.notes.c.key == name)).scalar() != before:
        raise Stale(f"the record {name} was read on meanwhile: read it again")
    rows.append(connection, list(events))
    rows.upsert(connection, t.notes, [{"key": name, "value": after}])


def put_note(connection: Connection, name: str, value: str, fence: int) -> None:
    """Raises LeaderFencedOff."""
    check_fence(connection, fence)
    rows.upsert(connection, t.notes, [{"key": name, "value": value}])


def change_time(change: Change, loaded_at: datetime | None) -> datetime | None:
    """When the change happened: time of its newest event, else of the snapshot that it was made from."""
    return max((e.at for e in change.events), default=loaded_at)


def _refuse_stale(connection: Connection, change: Change) -> None:
    known = {i.id: i.operated for i in change.incidents}
    if not known:
        return
    i = t.incidents.c
    for row in connection.execute(select(i.id, i.operated).where(i.id.in_(sorted(known)))):
        if row.operated != known[row.id]:
            raise Stale(f"an operator changed incident {row.id} meanwhile: load the state again")


def _place(connection: Connection, change: Change) -> None:
    for finding, incident in change.placed.items():
        connection.execute(t.findings.update().where(t.findings.c.id == finding).values(incident_id=incident))
    touched = {i.id for i in change.incidents} | set(change.placed.values())
    if touched:
        closed = select(t.incidents.c.id).where(t.incidents.c.id.in_(sorted(touched)), ~t.incidents.c.is_open)
        # The same fault counts as new after its incident was closed.
        over = t.findings.update().where(t.findings.c.incident_id.in_(closed), t.findings.c.live)
        connection.execute(over.values(live=False))


def _plan(connection: Connection, change: Change) -> None:
    if not change.intents:
        return
    keys = [i.key for i in change.intents]
    there = connection.execute(select(t.intents.c.key).where(t.intents.c.key.in_(keys))).scalars().all()
    twice = sorted(set(there) | {k for k in keys if keys.count(k) > 1})
    if twice:
        raise Rejected(f"intent {twice[0]} exists already: a step is planned once, its next attempt has another number")
    connection.execute(t.intents.insert(), [rows.intent_row(i) for i in change.intents])


def _marks(connection: Connection, change: Change) -> None:
    rows.upsert(connection, t.marks, [{"node": m.node, "document": encode(m)} for m in change.marks])


def _brakes(connection: Connection, change: Change) -> None:
    rows.upsert(connection, t.brakes, [{"kind": b.name, "document": encode(b)} for b in change.brakes])


def _job_ends(connection: Connection, change: Change) -> None:
    if change.ends:
        stamp = rows.next_stamp(connection, "job_ends")
        rows.upsert(connection, t.job_ends, [rows.job_end_row(end, stamp) for end in change.ends])
