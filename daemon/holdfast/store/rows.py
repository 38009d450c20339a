"""Rows and nouns: how each noun is written and read. The one place that knows which field has a column."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Connection, RowMapping, Table, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import Insert

from holdfast.model.action import SETTLED, Intent
from holdfast.model.event import Event, EventKind
from holdfast.model.incident import Incident, Recovery
from holdfast.model.report import Finding
from holdfast.store import tables as t
from holdfast.store.codec import decode, decode_action, decode_with, encode, plain


@cache
def _upsert_statement(dialect: str, table: Table) -> Insert:
    statement: Any = postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
    keys = [c.name for c in table.primary_key]
    others = {c.name: statement.excluded[c.name] for c in table.columns if c.name not in keys}
    upsert: Insert = statement.on_conflict_do_update(index_elements=keys, set_=others)
    return upsert


def upsert(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    """Insert, or replace what is there under the same key."""
    if rows:
        connection.execute(_upsert_statement(connection.dialect.name, table), rows)


def next_stamp(connection: Connection, name: str) -> int:
    """Counts up. Only inside a write transaction, which makes it unique and growing in the order of commits."""
    value = connection.execute(select(t.stamps.c.value).where(t.stamps.c.name == name)).scalar() or 0
    upsert(connection, t.stamps, [{"name": name, "value": value + 1}])
    return value + 1


def incident_row(incident: Incident) -> dict[str, Any]:
    return {
        "id": incident.id,
        "node": incident.node,
        "is_open": incident.open,
        "opened_at": incident.opened_at,
        "closed_at": incident.closed_at,
        "operated": incident.operated,
        "document": encode(incident),
    }


def incident_of(row: RowMapping) -> Incident:
    return decode(Incident, row["document"])


def finding_of(row: RowMapping) -> Finding:
    return decode_with(
        Finding, row["document"], id=row["id"], incident_id=row["incident_id"], cleared_at=row["cleared_at"]
    )


def recovery_row(recovery: Recovery, at: datetime | None) -> dict[str, Any]:
    """``at``: when a final one became final, as far as the change says."""
    return {
        "id": recovery.id,
        "job_id": recovery.job.job_id,
        "incident_id": recovery.incident_id,
        "created_at": recovery.created_at,
        "final_at": max(at or recovery.created_at, recovery.created_at) if recovery.final else None,
        "document": encode(recovery),
    }


def recovery_of(row: RowMapping) -> Recovery:
    return decode(Recovery, row["document"])


def intent_row(intent: Intent) -> dict[str, Any]:
    return {
        "key": intent.key,
        "incident_id": intent.incident_id,
        "kind": intent.kind,
        "node": getattr(intent.action, "node", None),
        "state": intent.state.value,
        "settled": intent.state in SETTLED,
        "planned_at": intent.planned_at,
        "position": intent.order,
        "document": encode(intent),
    }


def intent_of(row: RowMapping) -> Intent:
    return decode_with(Intent, row["document"], action=decode_action(row["document"]["action"]))


def event_row(event: Event) -> dict[str, Any]:
    return {
        "at": event.at,
        "kind": event.kind.value,
        "incident_id": event.incident_id,
        "node": event.node,
        "job": event.job,
        "text": event.text,
        "detail": plain(event.detail),
    }


def event_of(row: RowMapping) -> Event:
    return Event(**{**row, "kind": EventKind(row["kind"])})


def append(connection: Connection, events: list[Event]) -> None:
    """Append to the record; ids grow in this order."""
    if events:
        connection.execute(t.events.insert(), [event_row(e) for e in events])
