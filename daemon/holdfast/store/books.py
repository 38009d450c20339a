"""Load the state snapshot. The cost grows with open incidents and with the changes since the last load."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import Connection, RowMapping, func, or_, select

from holdfast.model.actions.action import Launch, Notify, Reboot, Replace, StopStart, Terminate
from holdfast.model.actions.budgets import BudgetExtension, BudgetKind
from holdfast.model.book import Book, Brake, CheckpointRecord, NodeMark, NodeRecord
from holdfast.model.elastic_jobs.room_names import KnownRoom, KnownRooms
from holdfast.model.incidents.incident import Incident
from holdfast.model.jobs.job_ends import JobEnd
from holdfast.model.machine import ProviderView
from holdfast.model.operators.maintenance import Windows
from holdfast.model.operators.node_orders import NodeOrders
from holdfast.model.operators.suppression import Suppression
from holdfast.model.policies.lookback import JOB_ENDS_S, SHIPPED, Lookback
from holdfast.store import rows
from holdfast.store import tables as t
from holdfast.store.codec import decode, encode, parsed
from holdfast.store.columns import UNREADABLE_TIME
from holdfast.store.standins import readable

T = TypeVar("T")

MACHINE_KINDS = tuple(each.__name__ for each in (Launch, Reboot, Replace, StopStart, Terminate, Notify))
"""Steps that are remembered as long as ``Lookback.machine_steps``: for caps, failed launches that outlive their incident, and
notifications about machines without an incident."""
MOST_CLEARED = 50
"""Limit of cleared findings of one open incident in a snapshot."""
_AT_A_TIME = 500
"""Names per query: SQLite limits the number of parameters."""
PAUSED = "paused"
"""Note that says who paused and why."""
PAUSED_AT = "paused.at"
RESTORED = "restored.at"
"""When ``holdfast restore`` put a backup in the store's place; UTC."""
"""Note with the time of the restore (ISO 8601)."""
MAINTENANCE = "maintenance"
"""Note with the maintenance windows."""
PROVIDER = "provider"
"""Note with what the actor last saw of the provider."""
NODES_SINCE = "nodes.since"
"""Note with the time since when it is on record who takes nodes out of service other than Holdfast (ISO 8601)."""
NODE_ORDERS = "nodes.orders"
"""Note with operators' orders to drain or release nodes."""
ROOMS = "quorum.rooms"
"""Note with the rendezvous of elastic jobs."""


@dataclass(slots=True)
class BookCache:
    """A reader's cache of the large tables; only rows with a newer stamp are read again."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    nodes_stamp: int = 0
    checkpoints: dict[tuple[int, str], tuple[datetime, CheckpointRecord]] = field(default_factory=dict)
    checkpoints_stamp: int = 0
    ends: dict[str, JobEnd] = field(default_factory=dict)
    ends_stamp: int = 0
    loaded_at: datetime | None = None
    """``now`` of the newest snapshot."""
    lookback: Lookback = SHIPPED
    """How far back it reaches for closed items."""


def load(connection: Connection, cache: BookCache, now: datetime, ahead: timedelta = timedelta(0)) -> Book:
    """Load one snapshot. The caller holds the cache's lock. ``ahead``: as of :meth:`holdfast.ports.Store.load_book`."""
    then = now - ahead
    back, provider = cache.lookback, read_provider(_note(connection, PROVIDER))
    cache.loaded_at = now
    paused = _note(connection, PAUSED)
    return Book(
        incidents=_incidents(connection, then, back),
        findings={f.id: f for f in map(rows.finding_of, _findings(connection, then - back.findings))},
        recoveries={
            r.id: r
            for row in _recoveries(connection, then - back.recoveries)
            if (r := rows.recovery_of(row)) is not None
        },
        intents={
            i.key: i for row in _intents(connection, then, back, provider) if (i := rows.intent_of(row)) is not None
        },
        marks=_marks(connection),
        nodes=_nodes(connection, cache),
        checkpoints=_checkpoints(connection, cache, now, then - back.checkpoints),
        brakes=_brakes(connection, now),
        ends=_ends(connection, cache, then - timedelta(seconds=JOB_ENDS_S)),
        suppressions=_suppressions(connection, now),
        rooms=read_rooms(_note(connection, ROOMS)),
        windows=read_windows(_note(connection, MAINTENANCE)).at(now).windows,
        paused=paused,
        paused_at=read_time(_note(connection, PAUSED_AT)) if paused is not None else None,
        nodes_since=read_time(_note(connection, NODES_SINCE)),
        node_orders=read_node_orders(_note(connection, NODE_ORDERS)).at(now).orders,
        restored_at=read_time(_note(connection, RESTORED)),
        provider=provider,
        extensions=_extensions(connection, now),
    )


def _note(connection: Connection, key: str) -> str | None:
    return connection.execute(select(t.notes.c.value).where(t.notes.c.key == key)).scalar()


def read_time(note: str | None) -> datetime | None:
    """The time in a note. None: there is no such note (older releases), or it cannot be read."""
    try:
        return datetime.fromisoformat(note).astimezone(UTC) if note is not None else None
    except ValueError:
        return None


def write_windows(windows: Windows) -> str:
    """What goes into the note."""
    return json.dumps(encode(windows))


def read_windows(note: str | None) -> Windows:
    """Maintenance windows in a note; empty if it cannot be read: their MAINT reservations in Slurm still keep Holdfast from acting."""
    if note is None:
        return Windows()
    return readable(lambda: decode(Windows, parsed(note)), Windows, "notes", MAINTENANCE)


def write_node_orders(orders: NodeOrders) -> str:
    """What goes into the note."""
    return json.dumps(encode(orders))


def read_node_orders(note: str | None) -> NodeOrders:
    """Orders in a note; empty if it cannot be read: none is carried out then, and the operator gives it again."""
    if note is None:
        return NodeOrders()
    return readable(lambda: decode(NodeOrders, parsed(note)), NodeOrders, "notes", NODE_ORDERS)


def _extensions(connection: Connection, now: datetime) -> dict[BudgetKind, BudgetExtension]:
    """Extensions in force. One that cannot be read extends nothing."""
    held: dict[BudgetKind, BudgetExtension] = {}
    for kind in BudgetKind:
        note = _note(connection, budget_note(kind))
        found = read_extension(note, kind) if note is not None else None
        if found is not None and found.until > now:
            held[kind] = found
    return held


def budget_note(kind: str) -> str:
    """Key of the note that holds a budget's extension."""
    return f"budget.{kind}"


def read_extension(note: str, kind: str) -> BudgetExtension | None:
    return readable(lambda: decode(BudgetExtension, parsed(note)), lambda: None, "notes", budget_note(kind))


def write_provider(view: ProviderView) -> str:
    """What goes into the note."""
    return json.dumps(encode(view))


def read_provider(note: str | None) -> ProviderView | None:
    """The actor's last view of the provider. None: there is none yet, or its note cannot be read: no repair is known to be possible."""
    if note is None:
        return None
    return readable(lambda: _provider(note), lambda: None, "notes", PROVIDER)


@lru_cache(2)  # read in every cycle, and written anew only every 20 s
def _provider(note: str) -> ProviderView:
    return decode(ProviderView, parsed(note))


def write_rooms(rooms: Iterable[KnownRoom]) -> str:
    """What goes into the note."""
    return json.dumps(encode(KnownRooms(tuple(sorted(rooms, key=lambda r: r.base_array_id)))))


def read_rooms(note: str | None) -> dict[int, KnownRoom]:
    """By job id of the base array. Empty: nothing is remembered, or the note cannot be read; Slurm and the open rendezvous then decide."""
    if note is None:
        return {}
    known = readable(lambda: decode(KnownRooms, parsed(note)), KnownRooms, "notes", ROOMS)
    return {each.base_array_id: each for each in known.rooms}


def _incidents(connection: Connection, now: datetime, back: Lookback) -> dict[str, Incident]:
    i = t.incidents.c
    # An open incident was never closed: select by both columns, in case one is damaged.
    wanted = (i.is_open, i.closed_at.is_(None), i.closed_at >= now - back.incidents)
    loaded = _read_incidents(connection, select(t.incidents).where(or_(*wanted)))
    return loaded | _announced(connection, loaded.values(), now - back.announced)


def _announced(connection: Connection, loaded: Iterable[Incident], oldest: datetime) -> dict[str, Incident]:
    """Closed incidents of nodes whose machine has an announced end: the same announcement may have been handled long ago."""
    i = t.incidents.c
    nodes = sorted({one.node for one in loaded if one.open and (one.notice or one.goes_at is not None)})
    found: dict[str, Incident] = {}
    for start in range(0, len(nodes), _AT_A_TIME):
        of_nodes = select(t.incidents).where(i.node.in_(nodes[start : start + _AT_A_TIME]), i.closed_at >= oldest)
        found |= _read_incidents(connection, of_nodes)
    return found


def _read_incidents(connection: Connection, query: Any) -> dict[str, Incident]:
    found = map(rows.incident_of, connection.execute(query).mappings())
    return {incident.id: incident for incident in found if incident is not None}


def _findings(connection: Connection, oldest: datetime) -> list[RowMapping]:
    """All live findings of open incidents, and the newest of their cleared ones: a flapping check or a faulty agent can add one
    every second while another finding keeps the incident open."""
    f = t.findings.c
    of_open = select(t.findings).join(t.incidents, t.incidents.c.id == f.incident_id).where(t.incidents.c.is_open)
    number = func.row_number().over(partition_by=f.incident_id, order_by=f.id.desc())
    cleared = of_open.where(~f.live).add_columns(number.label("number")).subquery()
    newest = (
        select(*(cleared.c[c.name] for c in t.findings.c))
        .where(cleared.c.number <= MOST_CLEARED)
        .order_by(cleared.c.id)
    )
    return _union(
        connection,
        of_open.where(f.live),
        newest,
        select(t.findings).where(f.incident_id.is_(None), f.last_seen_at >= oldest),
    )


def _recoveries(connection: Connection, oldest: datetime) -> list[RowMapping]:
    r = t.recoveries.c
    of_open = select(t.recoveries).join(t.incidents, t.incidents.c.id == r.incident_id).where(t.incidents.c.is_open)
    return _union(
        connection,
        select(t.recoveries).where(r.final_at.is_(None)),
        select(t.recoveries).where(r.final_at >= oldest),
        of_open,
    )


def _intents(connection: Connection, now: datetime, back: Lookback, provider: ProviderView | None) -> list[RowMapping]:
    """Intents of open incidents, unsettled and recent ones, and all of a recovery that outlives its incident: its next attempt
    needs the last number.

    Also those for a machine that the provider still shows on trial: it may be terminated long after its incident was closed."""
    i, r = t.intents.c, t.recoveries
    on_trial = (
        sorted({m.incident for m in provider.on_trial if m.incident})[:_AT_A_TIME] if provider is not None else []
    )
    of_incident = select(t.intents).join(t.incidents, t.incidents.c.id == i.incident_id)
    of_recovery = select(t.intents).join(r, r.c.incident_id == i.incident_id).where(r.c.final_at.is_(None))
    at_machines = i.kind.in_(MACHINE_KINDS)
    return _union(
        connection,
        of_incident.where(t.incidents.c.is_open),
        of_recovery,
        select(t.intents).where(~i.settled),
        select(t.intents).where(i.planned_at >= now - back.steps),
        select(t.intents).where(at_machines, i.planned_at >= now - back.machine_steps),
        *([select(t.intents).where(at_machines, i.incident_id.in_(on_trial))] if on_trial else []),
    )


def _union(connection: Connection, *selects: Any) -> list[RowMapping]:
    """Run each query by its own index; duplicate rows collapse in the mapping built from them."""
    return [row for one in selects for row in connection.execute(one).mappings()]


def _marks(connection: Connection) -> dict[str, NodeMark]:
    found = connection.execute(select(t.marks)).mappings()
    known = {row["node"]: rows.mark_of(row["document"], row["node"]) for row in found}
    return {node: mark for node, mark in known.items() if mark is not None}


def _brakes(connection: Connection, now: datetime) -> dict[str, Brake]:
    found = connection.execute(select(t.brakes)).mappings()
    return {row["kind"]: rows.brake_of(row["document"], row["kind"], now) for row in found}


def _suppressions(connection: Connection, now: datetime) -> dict[str, Suppression]:
    found = connection.execute(select(t.suppressions)).mappings()
    known = {row["id"]: rows.suppression_of(row["document"], row["id"]) for row in found}
    return {name: each for name, each in known.items() if each is not None and each.holds(now)}


def _nodes(connection: Connection, cache: BookCache) -> Mapping[str, NodeRecord]:
    n = t.nodes.c
    found = connection.execute(select(t.nodes).where(n.stamp > cache.nodes_stamp)).all()
    if found:
        cache.nodes = cache.nodes | {row.name: rows.node_of(row.document, row.name, row.instance_id) for row in found}
        cache.nodes_stamp = max(row.stamp for row in found)
    return cache.nodes


def _checkpoints(
    connection: Connection, cache: BookCache, now: datetime, oldest: datetime
) -> Mapping[int, Mapping[str, CheckpointRecord]]:
    c = t.checkpoints.c
    new = select(c.job_id, c.node, c.stated_at, c.stamp, c.document).where(c.stamp > cache.checkpoints_stamp)
    found = connection.execute(new.where(c.stated_at >= oldest)).all()
    for row in found:
        record = rows.checkpoint_of(row.document, row.job_id, row.node)
        if record is not None:
            stated_at = now if row.stated_at == UNREADABLE_TIME else row.stated_at
            cache.checkpoints[row.job_id, row.node] = (stated_at, record)
        cache.checkpoints_stamp = max(cache.checkpoints_stamp, row.stamp)
    count = connection.execute(select(func.count()).select_from(t.checkpoints).where(c.stated_at >= oldest)).scalar()
    if (count or 0) < len(cache.checkpoints):  # some were deleted: an agent had reported too many
        there = {(row.job_id, row.node) for row in connection.execute(select(c.job_id, c.node))}
        cache.checkpoints = {claim: kept for claim, kept in cache.checkpoints.items() if claim in there}
    forgotten = [claim for claim, (stated_at, _) in cache.checkpoints.items() if stated_at < oldest]
    for claim in forgotten:
        del cache.checkpoints[claim]
    claims: dict[int, dict[str, CheckpointRecord]] = {}
    for (job, node), (_, record) in cache.checkpoints.items():
        claims.setdefault(job, {})[node] = record
    return claims


def _ends(connection: Connection, cache: BookCache, oldest: datetime) -> Mapping[str, JobEnd]:
    e = t.job_ends.c
    query = select(t.job_ends).where(e.stamp > cache.ends_stamp, e.ended_at >= oldest)
    for row in connection.execute(query).mappings():
        cache.ends_stamp = max(cache.ends_stamp, row["stamp"])
        end = rows.job_end_of(row)
        if end is not None:
            cache.ends = {**cache.ends, end.id: end}
    if any(end.ended_at < oldest for end in cache.ends.values()):
        cache.ends = {run: end for run, end in cache.ends.items() if end.ended_at >= oldest}
    return cache.ends
