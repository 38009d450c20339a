"""Node records and the inventories of their machines.

A record's boot id and GPUs (including exchanged ones) are those of the newest inventory of the serving machine. Both writers ensure
this (the controller that names the serving machine, the agent that sends its inventory), so neither overwrites the other's data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlalchemy import Connection, select

from holdfast.model.book import NodeRecord
from holdfast.model.report import Inventory, Report
from holdfast.store import rows
from holdfast.store import tables as t
from holdfast.store.codec import encode


def put(connection: Connection, records: Iterable[NodeRecord]) -> None:
    """Write records; a machine whose inventory is known brings its own boot id and GPUs."""
    for record in records:
        i = t.inventories.c
        found = connection.execute(
            select(i.boot_id, i.document).where(i.node == record.name, i.instance_id == record.instance_id)
        ).first()
        known = record
        if found is not None:
            inventory = rows.inventory_of(found.document, record.name)
            gpus = record.gpu_uuids if inventory is None else frozenset(inventory.gpus)
            known = replace(record, boot_id=found.boot_id, gpu_uuids=gpus)
        stored = _stored(connection, record.name)
        if stored.instance_id == record.instance_id:
            known = replace(known, exchanged_gpus=stored.exchanged_gpus)
        _write(connection, known)


def await_return(connection: Connection, name: str, incident_id: str) -> None:
    """Remember that this incident was closed while its node is out of service: the node's return is recorded later."""
    _write(connection, replace(_stored(connection, name), out_for=incident_id))


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
        _write(connection, known.with_gpus(report.boot_id, frozenset(inventory.gpus)))


def _stored(connection: Connection, name: str) -> NodeRecord:
    n = t.nodes.c
    found = connection.execute(select(n.instance_id, n.document).where(n.name == name)).first()
    return rows.node_of(found.document, name, found.instance_id) if found else NodeRecord(name)


def _write(connection: Connection, record: NodeRecord) -> None:
    row = {
        "name": record.name,
        "instance_id": record.instance_id,
        "stamp": rows.next_stamp(connection, "nodes"),
        "document": encode(record),
    }
    rows.upsert(connection, t.nodes, [row])
