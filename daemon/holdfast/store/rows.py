"""Conversion between rows and the model's classes. The only module that knows which field has a column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import Connection, RowMapping, Table, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import Insert

from holdfast.model.actions.action import SETTLED, Intent
from holdfast.model.agents.report import Finding, Inventory
from holdfast.model.book import Brake, CheckpointRecord, NodeMark, NodeRecord
from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import Incident, Recovery
from holdfast.model.jobs.job_ends import JobEnd
from holdfast.model.operators.suppression import Suppression
from holdfast.store import standins
from holdfast.store import tables as t
from holdfast.store.codec import UnreadableDocument, clean, decode, decode_with, encode, finite, plain, read_action
from holdfast.store.standins import readable
from holdfast.unknown import read_word, set_aside

T = TypeVar("T")


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
    """Next value of a counter. Only inside a write transaction, which makes it unique and growing in commit order."""
    value = connection.execute(select(t.stamps.c.value).where(t.stamps.c.name == name)).scalar()
    if not value:  # the first, or one that cannot be read
        stamped = t.metadata.tables[name].c.stamp
        value = max(connection.execute(select(stamped)).scalars(), default=0)
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


def incident_of(row: RowMapping) -> Incident | None:
    """Read a node. The row must have all columns: they are used if the document cannot be read (:mod:`.standins`).

    None: neither the document nor the row's name can be read."""
    return readable(lambda: _incident(row), lambda: standins.incident(row), "incidents", row["id"])


def _incident(row: RowMapping) -> Incident:
    incident = decode_with(Incident, row["document"], operated=row["operated"])
    _same(row, id=incident.id, node=incident.node)
    return incident


def _same(row: RowMapping, **said: object) -> None:
    """Check that the document belongs to this row. Raises UnreadableDocument."""
    for column, value in said.items():
        if row[column] != (clean(value) if isinstance(value, str) else value):
            raise UnreadableDocument(f"the row's {column} is {row[column]!r:.80}, its document's {value!r:.80}")


def finding_of(row: RowMapping) -> Finding:
    return readable(lambda: _finding(row), lambda: standins.finding(row), "findings", row["id"])


def _finding(row: RowMapping) -> Finding:
    columns = {"id": row["id"], "incident_id": row["incident_id"], "cleared_at": standins.cleared_at(row)}
    finding = decode_with(Finding, row["document"], **columns)
    last = standins.last_fault_at(row)
    if last is not None and last > finding.fault_at:
        finding = replace(finding, last_fault_at=last)
    _same(row, node=finding.node, instance_id=finding.instance_id, check_id=finding.check, component=finding.component)
    return finding


def recovery_row(recovery: Recovery, at: datetime | None) -> dict[str, Any]:
    """Row of a recovery. ``at``: when it became final, as far as the change says."""
    return {
        "id": recovery.id,
        "job_id": recovery.job.job_id,
        "incident_id": recovery.incident_id,
        "created_at": recovery.created_at,
        "final_at": max(at or recovery.created_at, recovery.created_at) if recovery.final else None,
        "document": encode(recovery),
    }


def recovery_of(row: RowMapping) -> Recovery | None:
    """None: neither the document nor the row's name can be read."""
    return readable(lambda: _recovery(row), lambda: standins.recovery(row), "recoveries", row["id"])


def _recovery(row: RowMapping) -> Recovery:
    recovery = decode(Recovery, row["document"])
    _same(row, id=recovery.id, job_id=recovery.job.job_id, incident_id=recovery.incident_id)
    return recovery


def job_end_row(end: JobEnd, stamp: int) -> dict[str, Any]:
    return {
        "id": end.id,
        "job_id": end.job.job_id,
        "ended_at": end.ended_at,
        "stamp": stamp,
        "document": encode(end),
    }


def job_end_of(row: RowMapping) -> JobEnd | None:
    """None: it cannot be read; why the run died is not known then."""
    return readable(lambda: _job_end(row), lambda: None, "job_ends", row["id"])


def _job_end(row: RowMapping) -> JobEnd:
    end = decode(JobEnd, row["document"])
    _same(row, id=end.id, job_id=end.job.job_id)
    return end


def intent_row(intent: Intent) -> dict[str, Any]:
    return {
        "key": intent.key,
        "incident_id": intent.incident_id,
        "kind": intent.kind,
        "node": intent.action.target.node,
        "state": intent.state.value,
        "settled": intent.state in SETTLED,
        "planned_at": intent.planned_at,
        "position": intent.order,
        "document": encode(intent),
    }


def intent_of(row: RowMapping) -> Intent | None:
    """None: neither the document nor the row's key can be read."""
    return readable(lambda: _intent_of(row), lambda: standins.intent(row), "intents", row["key"])


def _intent(document: Any) -> Intent:
    action = document.get("action") if isinstance(document, Mapping) else None
    return decode_with(Intent, document, action=read_action(action))


def _intent_of(row: RowMapping) -> Intent:
    intent = _intent(row["document"])
    _same(row, key=intent.key, incident_id=intent.incident_id, kind=intent.kind, position=intent.order)
    _same(row, node=intent.action.target.node)
    return intent


def inventory_of(document: Any, node: str) -> Inventory | None:
    """None: it cannot be read; the agent sends another one when it starts."""
    return readable(lambda: decode(Inventory, document), lambda: None, "inventories", node)


def checkpoint_of(document: Any, job_id: int, node: str) -> CheckpointRecord | None:
    """None: it cannot be read; nothing is known of the job's checkpoints then."""
    return readable(lambda: _checkpoint(document, job_id, node), lambda: None, "checkpoints", f"{job_id} {node}")


def _checkpoint(document: Any, job_id: int, node: str) -> CheckpointRecord:
    record = decode(CheckpointRecord, document)
    if record.job_id != job_id or record.node not in ("", node):
        raise UnreadableDocument(f"the record is of job {record.job_id} on {record.node!r:.80}")
    return record


def node_of(document: Any, name: str, instance_id: str) -> NodeRecord:
    """One that cannot be read keeps the machine that serves the node, unless the document names another: then none is known."""
    try:
        record = decode(NodeRecord, document)
        if record.name != name:
            raise UnreadableDocument(f"the record is of node {record.name!r:.80}")
        if record.instance_id != instance_id:
            set_aside(
                "nodes", name, f"the row names machine {instance_id!r:.80}, its document {record.instance_id!r:.80}"
            )
            return NodeRecord(name)
    except UnreadableDocument as error:
        set_aside("nodes", name, str(error))
        return NodeRecord(name, instance_id)
    return record


def brake_of(document: Any, name: str, since: datetime) -> Brake:
    """One that cannot be read holds since ``since``, until an operator releases it."""
    return readable(
        lambda: _named(decode(Brake, document), "name", name), lambda: standins.brake(name, since), "brakes", name
    )


def _named(noun: T, field: str, name: str) -> T:
    """The noun, which its row names so. Raises UnreadableDocument."""
    if str(getattr(noun, field)) != name:
        raise UnreadableDocument(f"its document is of {getattr(noun, field)!r:.80}")
    return noun


def mark_of(document: Any, node: str) -> NodeMark | None:
    """None: it cannot be read; the drain counts as another's then, which Holdfast does not take back."""
    return readable(lambda: _named(decode(NodeMark, document), "node", node), lambda: None, "marks", node)


def suppression_of(document: Any, name: str) -> Suppression | None:
    """None: it cannot be read; the findings lead to incidents then."""
    return readable(lambda: _named(decode(Suppression, document), "id", name), lambda: None, "suppressions", name)


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
    """One of a kind that this release does not know says in its text which it is."""
    kind = read_word(EventKind, row["kind"], "events.kind") or EventKind.UNKNOWN
    text = row["text"] if kind.value == row["kind"] else f"{row['kind']}: {row['text']}"
    detail = row["detail"] if isinstance(row["detail"], Mapping) else {}
    return Event(**{**row, "kind": kind, "text": text, "detail": finite(detail)})


def append(connection: Connection, events: list[Event]) -> None:
    """Append to the record; ids grow in this order."""
    if events:
        connection.execute(t.events.insert(), [event_row(e) for e in events])
