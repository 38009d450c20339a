"""Pages of lists for the API: rows of one order, from a position on. A position is the sort key of a row, so that rows that are added
meanwhile move none from one page to the next."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, and_, or_, select

from holdfast.model.actions.action import Intent
from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import Incident
from holdfast.store import rows
from holdfast.store import tables as t

IncidentPlace = tuple[datetime, str]
"""When it was opened, and its id."""
IntentPlace = tuple[datetime, int, str]
"""When it was planned, its order, and its key."""


def incidents(
    connection: Connection,
    only_open: bool,
    node: str | None,
    since: datetime | None,
    until: datetime | None,
    before: IncidentPlace | None,
    limit: int,
) -> tuple[Incident, ...]:
    """Newest first."""
    i = t.incidents.c
    query = select(t.incidents).order_by(i.opened_at.desc(), i.id.desc()).limit(limit)
    if only_open:
        query = query.where(i.is_open)
    if node is not None:
        query = query.where(i.node == node)
    if since is not None:
        query = query.where(i.opened_at >= since)
    if until is not None:
        query = query.where(i.opened_at < until)
    if before is not None:
        at, number = before
        query = query.where(or_(i.opened_at < at, and_(i.opened_at == at, i.id < number)))
    found = map(rows.incident_of, connection.execute(query).mappings())
    return tuple(incident for incident in found if incident is not None)


def intents(
    connection: Connection,
    incident_id: str | None,
    since: datetime | None,
    until: datetime | None,
    before: IntentPlace | None,
    limit: int,
) -> tuple[Intent, ...]:
    """Newest first."""
    i = t.intents.c
    query = select(t.intents).order_by(i.planned_at.desc(), i.position.desc(), i.key.desc()).limit(limit)
    if incident_id is not None:
        query = query.where(i.incident_id == incident_id)
    if since is not None:
        query = query.where(i.planned_at >= since)
    if until is not None:
        query = query.where(i.planned_at < until)
    if before is not None:
        at, order, key = before
        same = and_(i.planned_at == at, or_(i.position < order, and_(i.position == order, i.key < key)))
        query = query.where(or_(i.planned_at < at, same))
    found = map(rows.intent_of, connection.execute(query).mappings())
    return tuple(intent for intent in found if intent is not None)


def events(
    connection: Connection,
    incident_id: str | None,
    node: str | None,
    since: datetime | None,
    until: datetime | None,
    after_id: int,
    before_id: int | None,
    kinds: tuple[EventKind, ...],
    limit: int,
    newest_first: bool,
) -> tuple[Event, ...]:
    """Oldest first, or newest first."""
    e = t.events.c
    query = select(t.events).order_by(e.id.desc() if newest_first else e.id).where(e.id > after_id).limit(limit)
    if before_id is not None:
        query = query.where(e.id < before_id)
    if incident_id is not None:
        query = query.where(e.incident_id == incident_id)
    if node is not None:
        query = query.where(e.node == node)
    if since is not None:
        query = query.where(e.at >= since)
    if until is not None:
        query = query.where(e.at < until)
    if kinds:
        query = query.where(e.kind.in_([k.value for k in kinds]))
    return tuple(rows.event_of(row) for row in connection.execute(query).mappings())
