"""Queries for display, the API and timings: incidents, events, recoveries, intents, findings."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection, func, select

from holdfast.model.actions.action import Intent, SendOrder, UnknownAction
from holdfast.model.agents.report import Inventory, NodeMachine, SeenFinding
from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import Incident, Recovery
from holdfast.model.jobs.job_ends import JobEnd
from holdfast.store import rows
from holdfast.store import tables as t

_MOST_ENDS = 200
"""Recoveries of one job id; Slurm reuses ids."""


def incidents(
    connection: Connection, only_open: bool, node: str | None, since: datetime | None, limit: int
) -> tuple[Incident, ...]:
    i = t.incidents.c
    query = select(t.incidents).order_by(i.opened_at.desc(), i.id.desc()).limit(limit)
    if only_open:
        query = query.where(i.is_open)
    if node is not None:
        query = query.where(i.node == node)
    if since is not None:
        query = query.where(i.opened_at >= since)
    found = map(rows.incident_of, connection.execute(query).mappings())
    return tuple(incident for incident in found if incident is not None)


def closed_within(connection: Connection, since: datetime, until: datetime, limit: int) -> tuple[Incident, ...]:
    """Those that were opened before the span and closed in it, in the order of their ends."""
    i = t.incidents.c
    within = (i.closed_at >= since) & (i.closed_at <= until) & (i.opened_at < since)
    query = select(t.incidents).where(within).order_by(i.closed_at, i.id).limit(limit)
    found = map(rows.incident_of, connection.execute(query).mappings())
    return tuple(incident for incident in found if incident is not None)


def incident(connection: Connection, incident_id: str) -> Incident | None:
    i = t.incidents.c
    row = connection.execute(select(t.incidents).where(i.id == incident_id)).mappings().first()
    return rows.incident_of(row) if row else None


def events(
    connection: Connection,
    incident_id: str | None,
    since: datetime | None,
    after_id: int,
    kinds: tuple[EventKind, ...],
    limit: int,
) -> tuple[Event, ...]:
    e = t.events.c
    query = select(t.events).order_by(e.id).limit(limit)
    if after_id:
        query = query.where(e.id > after_id)
    if incident_id is not None:
        query = query.where(e.incident_id == incident_id)
    if since is not None:
        query = query.where(e.at >= since)
    if kinds:
        query = query.where(e.kind.in_([k.value for k in kinds]))
    return tuple(rows.event_of(row) for row in connection.execute(query).mappings())


def newest_events(connection: Connection, kind: EventKind, since: datetime, limit: int) -> tuple[Event, ...]:
    """The newest ``limit`` of a kind, oldest first."""
    e = t.events.c
    query = select(t.events).where(e.kind == kind.value, e.at >= since).order_by(e.id.desc()).limit(limit)
    return tuple(rows.event_of(row) for row in connection.execute(query).mappings())[::-1]


def newest_event_id(connection: Connection) -> int:
    """Numbers grow in the order of commits, since the store takes one write at a time (:mod:`holdfast.store.engines`)."""
    return connection.execute(select(func.max(t.events.c.id))).scalar() or 0


_SHARED = 500
"""Events of many nodes, or of none, that are searched for a node at a time."""


def node_events(
    connection: Connection,
    node: str,
    kinds: Collection[EventKind],
    shared: Collection[EventKind],
    since: datetime | None,
    before_id: int | None,
    limit: int,
) -> tuple[tuple[Event, ...], int | None]:
    """The newest ``limit`` events of a node, of its incidents, and of many nodes at once that may name it (``shared``), oldest first; and
    the id to read on before, None where nothing older is left."""
    e, i = t.events.c, t.incidents.c
    mine = select(i.id).where(i.node == node)
    queries = (
        (e.node == node, kinds, limit),
        (e.node.is_(None) & e.incident_id.in_(mine), kinds, limit),
        (e.node.is_(None) & e.incident_id.is_(None), shared, _SHARED),
    )
    found: dict[int, Event] = {}
    floor = 0
    for condition, wanted, most in queries:
        query = (
            select(t.events).where(condition, e.kind.in_([k.value for k in wanted])).order_by(e.id.desc()).limit(most)
        )
        if since is not None:
            query = query.where(e.at >= since)
        if before_id is not None:
            query = query.where(e.id < before_id)
        page = [rows.event_of(row) for row in connection.execute(query).mappings()]
        found |= {event.id: event for event in page}
        floor = max(floor, page[-1].id if len(page) == most else 0)
    kept = sorted(number for number in found if number >= floor)
    if len(kept) > limit:
        kept = kept[-limit:]
        floor = kept[0]
    return tuple(found[number] for number in kept), floor or None


def machines(connection: Connection, node: str) -> tuple[NodeMachine, ...]:
    """Every machine that reported for the node, with its newest inventory, in the order of their last one."""
    v = t.inventories.c
    found = connection.execute(select(t.inventories).where(v.node == node).order_by(v.received_at)).all()
    known = ((row, rows.inventory_of(row.document, node)) for row in found)
    return tuple(
        NodeMachine(row.instance_id, row.boot_id, row.received_at, inventory)
        for row, inventory in known
        if inventory is not None
    )


def recoveries(
    connection: Connection, job_id: int | None, incident_id: str | None, since: datetime | None
) -> tuple[Recovery, ...]:
    r = t.recoveries.c
    query = select(t.recoveries).order_by(r.created_at, r.id)
    if job_id is not None:
        query = query.where(r.job_id == job_id)
    if incident_id is not None:
        query = query.where(r.incident_id == incident_id)
    if since is not None:
        query = query.where(r.created_at >= since)
    found = map(rows.recovery_of, connection.execute(query).mappings())
    return tuple(recovery for recovery in found if recovery is not None)


def job_ends(connection: Connection, job_id: int) -> tuple[JobEnd, ...]:
    """Oldest first."""
    e = t.job_ends.c
    query = select(t.job_ends).where(e.job_id == job_id).order_by(e.ended_at.desc(), e.id.desc()).limit(_MOST_ENDS)
    found = map(rows.job_end_of, connection.execute(query).mappings())
    return tuple(reversed([end for end in found if end is not None]))


def intents(connection: Connection, incident_id: str | None, limit: int) -> tuple[Intent, ...]:
    """The newest ``limit``, oldest first."""
    i = t.intents.c
    query = select(t.intents).order_by(i.planned_at.desc(), i.position.desc(), i.key.desc()).limit(limit)
    if incident_id is not None:
        query = query.where(i.incident_id == incident_id)
    newest_first = map(rows.intent_of, connection.execute(query).mappings())
    return tuple(reversed([intent for intent in newest_first if intent is not None]))


def due_intents(connection: Connection) -> tuple[Intent, ...]:
    i = t.intents.c
    query = select(t.intents).where(~i.settled, i.kind != SendOrder.__name__).order_by(i.planned_at, i.position, i.key)
    found = map(rows.intent_of, connection.execute(query).mappings())
    return tuple(
        i for i in found if i is not None and not i.settled and not isinstance(i.action, UnknownAction | SendOrder)
    )


def findings(
    connection: Connection, incident_id: str | None, node: str | None, since: datetime | None, limit: int
) -> tuple[SeenFinding, ...]:
    """The newest ``limit``, newest first. ``since``: only those that were seen at or after it."""
    f = t.findings.c
    query = select(t.findings).order_by(f.id.desc()).limit(limit)
    if incident_id is not None:
        query = query.where(f.incident_id == incident_id)
    if node is not None:
        query = query.where(f.node == node)
    if since is not None:
        query = query.where(f.last_seen_at >= since)
    found = connection.execute(query).mappings()
    return tuple(SeenFinding(rows.finding_of(row), row["repeats"], row["last_seen_at"]) for row in found)


def inventories(connection: Connection, node: str) -> dict[str, Inventory]:
    """Machine → its newest inventory, for all machines that reported for the node."""
    i = t.inventories.c
    found = connection.execute(select(i.instance_id, i.document).where(i.node == node))
    known = {row.instance_id: rows.inventory_of(row.document, node) for row in found}
    return {instance_id: inventory for instance_id, inventory in known.items() if inventory is not None}
