"""Node records and the inventories of their machines.

A record's boot id and GPUs (including exchanged ones) are those of the newest inventory of the serving machine. Both writers ensure
this (the controller that names the serving machine, the agent that sends its inventory), so neither overwrites the other's data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, func, select

from holdfast.model.agents.report import Inventory, Report
from holdfast.model.book import NodeRecord
from holdfast.model.event import Event, EventKind
from holdfast.store import rows
from holdfast.store import tables as t
from holdfast.store.codec import encode

MOST_MACHINE_EVENTS = 20
"""Events of other machines and boots of one node within an hour: more than a machine can boot, and an agent that invents boots fills no
record."""
MOST_MACHINES = 64
"""Machines of one node, other than the one that serves it, whose inventories are kept: the newest."""
_HOUR = timedelta(hours=1)


def put(connection: Connection, records: Iterable[NodeRecord], at: datetime | None) -> None:
    """Write records; a machine whose inventory is known brings its own boot id and GPUs. ``at``: time of the change."""
    wanted = list(records)
    names = [record.name for record in wanted]
    before, inventories = _all_stored(connection, names), _inventories(connection, names)
    written: list[NodeRecord] = []
    events: list[Event] = []
    for record in wanted:
        known, stored = record, before.get(record.name) or NodeRecord(record.name)
        if (found := inventories.get((record.name, record.instance_id))) is not None:
            boot_id, document = found
            inventory = rows.inventory_of(document, record.name)
            gpus = record.gpu_uuids if inventory is None else frozenset(inventory.gpus)
            known = replace(record, boot_id=boot_id, gpu_uuids=gpus)
        if stored.instance_id == record.instance_id:
            known = replace(known, exchanged_gpus=stored.exchanged_gpus)
        events += _few(connection, machine_events(stored, known, at))
        written.append(known)
    rows.append(connection, events)
    _write(connection, written)


def machine_events(before: NodeRecord, after: NodeRecord, at: datetime | None) -> list[Event]:
    """The event of another machine or boot of a node. None of its first machine: a new cluster's nodes are no news. ``at``: None: not
    known, so nothing is recorded."""
    if at is None or not before.instance_id or not after.boot_id:
        return []
    machine = {"instance_id": after.instance_id, "boot_id": after.boot_id}
    was = {"before": before.instance_id, "before_boot": before.boot_id}
    if before.instance_id != after.instance_id:
        text = f"machine {after.instance_id} serves the node now, in place of {before.instance_id}"
    elif before.boot_id and before.boot_id != after.boot_id:
        text = f"machine {after.instance_id} has booted: boot {after.boot_id}"
    else:
        return []
    return [Event(at, EventKind.NODE_MACHINE, None, after.name, text=text, detail=machine | was)]


def await_return(connection: Connection, name: str, incident_id: str) -> None:
    """Remember that this incident was closed while its node is out of service: the node's return is recorded later."""
    _write(connection, [replace(_stored(connection, name), out_for=incident_id)])


def take_inventory(connection: Connection, report: Report, inventory: Inventory) -> None:
    """Store an inventory; the node's record follows if it is the serving machine's, or if the node has none yet."""
    row = {
        "node": report.node,
        "instance_id": report.instance_id,
        "boot_id": report.boot_id,
        "received_at": report.received_at,
        "document": encode(inventory),
    }
    rows.upsert(connection, t.inventories, [row])
    record = _stored(connection, report.node)
    if record.instance_id in ("", report.instance_id):
        known = replace(record, instance_id=report.instance_id)
        known = known.with_gpus(report.boot_id, frozenset(inventory.gpus))
        rows.append(connection, _few(connection, machine_events(record, known, report.received_at)))
        _write(connection, [known])
    else:
        _forget_machines(connection, report.node, record.instance_id)


def _forget_machines(connection: Connection, node: str, serving: str) -> None:
    """Delete the inventories that are too many, the oldest first."""
    i = t.inventories.c
    others = (i.node == node) & (i.instance_id != serving)
    query = select(i.instance_id).where(others).order_by(i.received_at.desc(), i.instance_id).offset(MOST_MACHINES)
    names = connection.execute(query.limit(_AT_A_TIME)).scalars().all()
    if names:
        connection.execute(t.inventories.delete().where(others, i.instance_id.in_(names)))


def _few(connection: Connection, events: list[Event]) -> list[Event]:
    """Without those of a node that had too many within the hour."""
    return [_last(event, count) for event in events if (count := _count(connection, event)) < MOST_MACHINE_EVENTS]


def _count(connection: Connection, event: Event) -> int:
    e = t.events.c
    recent = (e.kind == event.kind.value) & (e.at > event.at - _HOUR) & (e.node == event.node)
    return int(connection.execute(select(func.count()).select_from(t.events).where(recent)).scalar() or 0)


def _last(event: Event, count: int) -> Event:
    more = "; further ones within the hour are not recorded" if count == MOST_MACHINE_EVENTS - 1 else ""
    return replace(event, text=event.text + more)


def _stored(connection: Connection, name: str) -> NodeRecord:
    return _all_stored(connection, [name]).get(name) or NodeRecord(name)


_AT_A_TIME = 500
"""Names per query: SQLite limits the number of parameters."""


def _all_stored(connection: Connection, names: Sequence[str]) -> dict[str, NodeRecord]:
    n = t.nodes.c
    query = select(n.name, n.instance_id, n.document)
    found = (row for some in _parts(names) for row in connection.execute(query.where(n.name.in_(some))))
    return {row.name: rows.node_of(row.document, row.name, row.instance_id) for row in found}


def _inventories(connection: Connection, names: Sequence[str]) -> dict[tuple[str, str], tuple[str, Any]]:
    """(node, machine) → (boot id, document)."""
    i = t.inventories.c
    query = select(i.node, i.instance_id, i.boot_id, i.document)
    found = (row for some in _parts(names) for row in connection.execute(query.where(i.node.in_(some))))
    return {(row.node, row.instance_id): (row.boot_id, row.document) for row in found}


def _parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[start : start + _AT_A_TIME] for start in range(0, len(names), _AT_A_TIME))


def _write(connection: Connection, records: Sequence[NodeRecord]) -> None:
    """With one stamp for all: they are read again together."""
    if not records:
        return
    stamp = rows.next_stamp(connection, "nodes")
    values = [{"name": r.name, "instance_id": r.instance_id, "stamp": stamp, "document": encode(r)} for r in records]
    rows.upsert(connection, t.nodes, values)
