"""Loading the book. Its cost grows with open incidents and with what changed since the last time."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import Connection, RowMapping, Table, or_, select

from holdfast.model.book import Book, Brake, CheckpointRecord, NodeMark, NodeRecord
from holdfast.model.incident import Incident
from holdfast.model.machine import ProviderView
from holdfast.model.suppression import Suppression
from holdfast.store import rows
from holdfast.store import tables as t
from holdfast.store.codec import decode, encode

T = TypeVar("T")

INCIDENT_MEMORY = timedelta(days=7)
"""Longest window that a decision looks back on: the third hardware fault of a node in seven days calls a human."""
RECOVERY_MEMORY = timedelta(hours=24)
"""The window in which a job itself becomes the suspect."""
INTENT_MEMORY = timedelta(minutes=60)
"""The longer window of the brakes."""
MACHINE_MEMORY = timedelta(days=7)
"""Launches, replacements and terminations: the caps of a day and of a week, and machines launched in vain that outlive their incident.
And who was told: of a machine that nobody's book has made a human hears once a week."""
MACHINE_KINDS = ("Launch", "Replace", "Terminate", "Notify")
FINDING_MEMORY = timedelta(days=7)
CHECKPOINT_MEMORY = timedelta(days=7)
"""A job that said nothing for longer counts as forgotten."""
PAUSED = "paused"
"""Note that says who paused and why."""
PROVIDER = "provider"
"""Note with what the actor last saw of the provider."""


@dataclass(slots=True)
class BookCache:
    """What a reader has read of the large tables; only rows with a newer stamp are read again."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    nodes_stamp: int = 0
    checkpoints: dict[tuple[int, str], tuple[datetime, CheckpointRecord]] = field(default_factory=dict)
    checkpoints_stamp: int = 0
    loaded_at: datetime | None = None
    """``now`` of the newest book."""


def load(connection: Connection, cache: BookCache, now: datetime) -> Book:
    """One snapshot. Call it with the cache's lock held."""
    cache.loaded_at = now
    return Book(
        incidents=_incidents(connection, now),
        findings={f.id: f for f in map(rows.finding_of, _findings(connection, now))},
        recoveries={r.id: r for r in map(rows.recovery_of, _recoveries(connection, now))},
        intents={i.key: i for i in map(rows.intent_of, _intents(connection, now))},
        marks=_documents(connection, t.marks, "node", NodeMark),
        nodes=_nodes(connection, cache),
        checkpoints=_checkpoints(connection, cache, now),
        brakes=_documents(connection, t.brakes, "kind", Brake),
        suppressions={
            name: each
            for name, each in _documents(connection, t.suppressions, "id", Suppression).items()
            if each.holds(now)
        },
        paused=_note(connection, PAUSED),
        provider=read_provider(_note(connection, PROVIDER)),
    )


def _note(connection: Connection, key: str) -> str | None:
    return connection.execute(select(t.notes.c.value).where(t.notes.c.key == key)).scalar()


def write_provider(view: ProviderView) -> str:
    """What goes into the note."""
    return json.dumps(encode(view))


def read_provider(note: str | None) -> ProviderView | None:
    return decode(ProviderView, json.loads(note)) if note is not None else None


def _incidents(connection: Connection, now: datetime) -> dict[str, Incident]:
    i = t.incidents.c
    wanted = (i.is_open, i.closed_at >= now - INCIDENT_MEMORY)
    found = connection.execute(select(i.id, i.document).where(or_(*wanted))).mappings()
    return {row["id"]: rows.incident_of(row) for row in found}


def _findings(connection: Connection, now: datetime) -> list[RowMapping]:
    f = t.findings.c
    columns = (f.id, f.incident_id, f.cleared_at, f.document)
    return _union(
        connection,
        select(*columns).join(t.incidents, t.incidents.c.id == f.incident_id).where(t.incidents.c.is_open),
        select(*columns).where(f.incident_id.is_(None), f.last_seen_at >= now - FINDING_MEMORY),
    )


def _recoveries(connection: Connection, now: datetime) -> list[RowMapping]:
    r = t.recoveries.c
    of_open = select(r.document).join(t.incidents, t.incidents.c.id == r.incident_id).where(t.incidents.c.is_open)
    return _union(
        connection,
        select(r.document).where(r.final_at.is_(None)),
        select(r.document).where(r.final_at >= now - RECOVERY_MEMORY),
        of_open,
    )


def _intents(connection: Connection, now: datetime) -> list[RowMapping]:
    """Also what is not settled, and all of a recovery that outlives its incident: its next attempt needs the last number."""
    i, r = t.intents.c, t.recoveries
    of_open = select(i.document).join(t.incidents, t.incidents.c.id == i.incident_id).where(t.incidents.c.is_open)
    of_recovery = select(i.document).join(r, r.c.incident_id == i.incident_id).where(r.c.final_at.is_(None))
    return _union(
        connection,
        of_open,
        of_recovery,
        select(i.document).where(~i.settled),
        select(i.document).where(i.planned_at >= now - INTENT_MEMORY),
        select(i.document).where(i.kind.in_(MACHINE_KINDS), i.planned_at >= now - MACHINE_MEMORY),
    )


def _union(connection: Connection, *selects: Any) -> list[RowMapping]:
    """Each by its own index; a row that comes twice is one entry of the mapping that is made of them."""
    return [row for one in selects for row in connection.execute(one).mappings()]


def _documents(connection: Connection, table: Table, key: str, noun: type[T]) -> dict[str, T]:
    found = connection.execute(select(table.c[key], table.c.document))
    return {name: decode(noun, document) for name, document in found}


def _nodes(connection: Connection, cache: BookCache) -> Mapping[str, NodeRecord]:
    n = t.nodes.c
    found = connection.execute(select(n.stamp, n.name, n.document).where(n.stamp > cache.nodes_stamp)).all()
    if found:
        cache.nodes = cache.nodes | {row.name: decode(NodeRecord, row.document) for row in found}
        cache.nodes_stamp = max(row.stamp for row in found)
    return cache.nodes


def _checkpoints(
    connection: Connection, cache: BookCache, now: datetime
) -> Mapping[int, Mapping[str, CheckpointRecord]]:
    c, oldest = t.checkpoints.c, now - CHECKPOINT_MEMORY
    new = select(c.job_id, c.node, c.stated_at, c.stamp, c.document).where(c.stamp > cache.checkpoints_stamp)
    found = connection.execute(new.where(c.stated_at >= oldest)).all()
    for row in found:
        cache.checkpoints[row.job_id, row.node] = (row.stated_at, decode(CheckpointRecord, row.document))
        cache.checkpoints_stamp = max(cache.checkpoints_stamp, row.stamp)
    forgotten = [claim for claim, (stated_at, _) in cache.checkpoints.items() if stated_at < oldest]
    for claim in forgotten:
        del cache.checkpoints[claim]
    claims: dict[int, dict[str, CheckpointRecord]] = {}
    for (job, node), (_, record) in cache.checkpoints.items():
        claims.setdefault(job, {})[node] = record
    return claims
