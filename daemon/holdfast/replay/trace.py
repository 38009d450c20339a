"""A failure trace: which node was out from when until when, and why. Pure; the caller reads the file."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from holdfast.model.errors import Usage
from holdfast.planning import nodes_out
from holdfast.planning.nodes_out import NodesOut

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""Where a trace counts days from its start, that start."""
_FIRST_YEAR, _LAST_YEAR = 1990, 2200
"""No cluster's dates are older, nor newer; what is older was counted in days."""
_MOST_DAYS = 7300
"""Of a trace: twenty years. The replay decides for each hour of it."""
_HEAD = ["node", "start", "end", "cause"]


@dataclass(frozen=True, slots=True)
class FailureSpan:
    """One node out of service."""

    node: str
    start: datetime
    end: datetime | None
    """None: it was still out where the trace ends."""
    cause: str


@dataclass(frozen=True, slots=True)
class Trace:
    """In the order of their starts; of one node no two at the same time."""

    failures: tuple[FailureSpan, ...]
    begins: datetime
    ends: datetime

    @property
    def hours(self) -> float:
        return (self.ends - self.begins).total_seconds() / 3600

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(f.node for f in self.failures)

    def lasted_h(self, failure: FailureSpan) -> float:
        return ((failure.end or self.ends) - failure.start).total_seconds() / 3600

    def out(self) -> NodesOut:
        """Nodes out at the same time, as shares of the trace's time."""
        starts = [((f.start - self.begins).total_seconds() / 3600, f) for f in self.failures]
        return nodes_out.measured(((at, at + self.lasted_h(f)) for at, f in starts), self.hours)


def read_trace(lines: Iterable[str], name: str) -> Trace:
    """From CSV with the columns node, start, end, cause; lines that begin with ``#`` are comments. Times are ISO 8601 (UTC without an
    offset), or days since the start of the trace as numbers; an empty end: still out. Raises Usage with the line and what to change."""
    spans = sorted(_spans(lines, name), key=lambda f: (f.start, f.node))
    if not spans:
        raise Usage(f"{name} has no failure: a line `node,start,end,cause` and one line for each failure are needed")
    begins = EPOCH if spans[0].start.year < _FIRST_YEAR else spans[0].start
    ends = max([f.start for f in spans] + [f.end for f in spans if f.end is not None])
    if ends <= begins:
        raise Usage(f"{name} covers no time: it needs an end, or two failures at different times")
    if ends - begins > timedelta(days=_MOST_DAYS):
        raise Usage(f"{name} covers {(ends - begins).days:,} days; at most {_MOST_DAYS:,}: is a year misspelt?")
    return Trace(tuple(_joined(spans)), begins, ends)


def _spans(lines: Iterable[str], name: str) -> Iterator[FailureSpan]:
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")]
    rows = csv.reader(line for _, line in numbered)
    for number, _ in numbered:
        where = f"{name}, line {number}"
        try:
            cells = [cell.strip() for cell in next(rows)]
        except StopIteration:
            return  # a cell in quotes went on over several lines
        except csv.Error as error:
            raise Usage(f"{where}: {error}; needed are node,start,end,cause") from None
        if [cell.lower() for cell in cells] == _HEAD:
            continue
        if len(cells) != len(_HEAD) or not cells[0]:
            raise Usage(f"{where}: {len(cells)} columns; needed are node,start,end,cause")
        start, end = _time(cells[1], where), _time(cells[2], where) if cells[2] else None
        if end is not None and end < start:
            raise Usage(f"{where}: its end {cells[2]} is before its start {cells[1]}")
        yield FailureSpan(cells[0], start, end, cells[3])


def _time(text: str, where: str) -> datetime:
    at = _days(text) or _date(text)
    if at is None:
        raise Usage(f"{where}: {text[:40]!r} is no time: write 2026-01-31T12:00, or days since the start as 12.5")
    return at


def _days(text: str) -> datetime | None:
    try:
        days = float(text)
    except ValueError:
        return None
    return EPOCH + timedelta(days=days) if 0 <= days <= _MOST_DAYS else None


def _date(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    if not _FIRST_YEAR <= at.year < _LAST_YEAR:
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _joined(spans: Iterable[FailureSpan]) -> list[FailureSpan]:
    """One that starts while its node is still out is the same outage, with the later end."""
    found: list[FailureSpan] = []
    newest: dict[str, int] = {}
    for span in spans:
        at = newest.get(span.node)
        before = found[at] if at is not None else None
        if at is not None and before is not None and (before.end is None or span.start < before.end):
            end = None if before.end is None or span.end is None else max(before.end, span.end)
            found[at] = replace(before, end=end)
            continue
        newest[span.node] = len(found)
        found.append(span)
    return found
