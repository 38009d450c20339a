"""Figures of incidents: those of closed ones as they are stored, of the others computed from their events.

A stored row says up to which event of its incident it was computed, and by which rules. One that an event came after (a job that runs again
later), or that another release wrote by other rules, is never used: its incident's figures are computed from the events then, and stored
again by :func:`put`. So no writer of events has to know of this table, also not one of an earlier release."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, RowMapping, Select, func, or_, select

from holdfast.metrics.figures import RULES, IncidentFigures, figures_of
from holdfast.metrics.timings import KINDS, IncidentTimings
from holdfast.model.event import Event
from holdfast.store import rows
from holdfast.store import tables as t
from holdfast.store.codec import UnreadableDocument, decode_with, encode
from holdfast.store.intents import check_fence
from holdfast.unknown import set_aside

T = TypeVar("T")
_AT_A_TIME = 100
"""Incidents whose events are read with one query: bounds memory."""
_NAMES = 500
"""Names per query: SQLite limits the number of parameters."""
_f, _i, _e = t.incident_figures.c, t.incidents.c, t.events.c
_NEWEST = select(func.max(_e.id)).where(_e.incident_id == _i.id).scalar_subquery()


@dataclass(frozen=True, slots=True)
class ComputedFigures:
    """Of one incident, to be stored."""

    figures: IncidentFigures
    timings: IncidentTimings | None
    event_id: int
    """Number of its newest event, of any kind; 0: it has none."""


def since(connection: Connection, start: datetime) -> tuple[IncidentFigures, ...]:
    """Of every incident that was open at that time, or later."""
    return tuple(figures for figures, _ in _read(connection, [_lasting(_query(_f.figures), start)]))


def timings_since(connection: Connection, start: datetime) -> tuple[IncidentTimings, ...]:
    """As :func:`since`: all that is known of each, in the order of their ids."""
    query = _lasting(_query(_f.timings), start)
    found = (timings for _, timings in _read(connection, [query], whole=True) if timings is not None)
    return tuple(sorted(found, key=lambda each: each.incident_id))


def of(connection: Connection, incident_ids: Collection[str], until: datetime) -> tuple[IncidentFigures, ...]:
    """Of these incidents, by what had happened at that time."""
    names = sorted(incident_ids)
    parts = [names[start : start + _NAMES] for start in range(0, len(names), _NAMES)]
    queries = [_query(_f.figures).where(_i.id.in_(part)) for part in parts]
    return tuple(figures for figures, _ in _read(connection, queries, until))


def unstored(connection: Connection, closed_since: datetime | None, limit: int) -> tuple[ComputedFigures, ...]:
    """Of closed incidents whose row is missing, or may not be used; ``closed_since`` None: whenever they were closed."""
    missing = or_(_f.incident_id.is_(None), _f.rules != RULES, _f.event_id < _NEWEST)
    query = _query().where(~_i.is_open, missing).order_by(_i.closed_at, _i.id).limit(limit)
    if closed_since is not None:
        query = query.where(_i.closed_at >= closed_since)
    newest = {row["id"]: row["newest"] or 0 for row in connection.execute(query).mappings()}
    found = _computed(connection, tuple(newest))
    return tuple(ComputedFigures(figures, timings, newest[figures.incident_id]) for figures, timings in found)


def put(connection: Connection, found: Iterable[ComputedFigures], fence: int) -> None:
    """Store them. Raises LeaderFencedOff."""
    check_fence(connection, fence)
    rows.upsert(
        connection,
        t.incident_figures,
        [
            {
                "incident_id": each.figures.incident_id,
                "rules": RULES,
                "event_id": each.event_id,
                "figures": encode(each.figures),
                "timings": encode(each.timings) if each.timings is not None else {},
            }
            for each in found
        ],
    )


def _query(*columns: Any) -> Select[Any]:
    stored = t.incidents.outerjoin(t.incident_figures, _f.incident_id == _i.id)
    return select(_i.id, _f.rules, _f.event_id, _NEWEST.label("newest"), *columns).select_from(stored)


def _lasting(query: Select[Any], start: datetime) -> Select[Any]:
    return query.where(or_(_i.closed_at >= start, _i.closed_at.is_(None)))


_Found = tuple[IncidentFigures, IncidentTimings | None]


def _read(
    connection: Connection, queries: Sequence[Select[Any]], until: datetime | None = None, *, whole: bool = False
) -> Iterator[_Found]:
    """Stored ones, then those that are computed. ``whole``: with the timings, which the queries then have instead of the figures."""
    missing: list[str] = []
    for query in queries:
        for row in connection.execute(query).mappings():
            stored = _timings(row) if whole else _figures(row, until)
            if stored is None:
                missing.append(row["id"])
            else:
                yield stored
    yield from _computed(connection, missing, until)


def _usable(row: RowMapping) -> bool:
    return row["rules"] == RULES and row["event_id"] is not None and (row["newest"] or 0) <= row["event_id"]


def _figures(row: RowMapping, until: datetime | None) -> _Found | None:
    """None: they are to be computed."""
    figures = _decoded(IncidentFigures, row, "figures") if _usable(row) else None
    late = figures is not None and until is not None and figures.last_at is not None and figures.last_at > until
    return (figures, None) if figures is not None and not late else None


def _timings(row: RowMapping) -> _Found | None:
    timings = _decoded(IncidentTimings, row, "timings") if _usable(row) else None
    return (IncidentFigures(row["id"]), timings) if timings is not None else None


def _decoded(noun: type[T], row: RowMapping, column: str) -> T | None:
    """None: it cannot be read, or is another incident's."""
    try:
        document = row[column]
        found = decode_with(noun, document)
        if document.get("incident_id") != row["id"]:
            raise UnreadableDocument(f"the document is of incident {document.get('incident_id')!r:.80}")
    except UnreadableDocument as error:
        set_aside("incident_figures", row["id"], str(error))
        return None
    return found


def _computed(connection: Connection, names: Sequence[str], until: datetime | None = None) -> Iterator[_Found]:
    """From the events; ``until``: those up to then."""
    kinds = [kind.value for kind in KINDS]
    for start in range(0, len(names), _AT_A_TIME):
        part = names[start : start + _AT_A_TIME]
        query = select(t.events).where(_e.incident_id.in_(part), _e.kind.in_(kinds)).order_by(_e.id)
        if until is not None:
            query = query.where(_e.at <= until)
        events: dict[str, list[Event]] = {name: [] for name in part}
        for row in connection.execute(query).mappings():
            events[row["incident_id"]].append(rows.event_of(row))
        for name, mine in events.items():
            yield figures_of(name, mine)
