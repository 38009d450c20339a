"""Geometry of the drawings, in the user units of an SVG. Pure: no drawing has an attribute ``style``, which the page's policy refuses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from holdfast.dashboard.screen import DAY, GridCell, GridGroup, NodeTrouble
from holdfast.model.event import EventKind
from holdfast.model.incidents.fleet import NodeGroup

WIDTH = 1024
PITCH_LARGE, PITCH_MIDDLE, PITCH_SMALL = 26, 14, 9
"""From one node of the grid to the next; small enough that 10,000 nodes fit a screen."""
MARKS = {
    NodeGroup.IN_SERVICE: "■",
    NodeGroup.DRAINING: "▽",
    NodeGroup.IN_REPAIR: "✚",
    NodeGroup.OUT: "○",
    NodeGroup.SILENT: "?",
    NodeGroup.UNKNOWN: "–",
}
"""Shape of each kind of trouble: no one has to distinguish colours."""
TROUBLE_WORDS = {
    NodeGroup.IN_SERVICE: "in service",
    NodeGroup.DRAINING: "draining",
    NodeGroup.IN_REPAIR: "in repair",
    NodeGroup.OUT: "out, not by Holdfast",
    NodeGroup.SILENT: "silent",
    NodeGroup.UNKNOWN: "unknown to Slurm",
}


@dataclass(frozen=True, slots=True)
class PlacedCell:
    """A node in trouble, or a spare, which has a shape to itself."""

    cell: GridCell
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class GridDrawing:
    """One group of the grid."""

    name: str
    nodes: int
    pitch: int
    columns: int
    width: int
    height: int
    good: str
    """Path of all nodes in service: one shape for thousands."""
    placed: tuple[PlacedCell, ...]
    first: str
    last: str


def pitch_of(nodes: int) -> int:
    """For the whole fleet, so that groups can be compared."""
    return PITCH_LARGE if nodes <= 200 else PITCH_MIDDLE if nodes <= 1500 else PITCH_SMALL


def draw(group: GridGroup, pitch: int) -> GridDrawing:
    columns = WIDTH // pitch
    size = pitch - max(2, pitch // 6)
    good: list[str] = []
    placed: list[PlacedCell] = []
    for number, cell in enumerate(group.cells):
        x, y = number % columns * pitch, number // columns * pitch
        if cell.trouble:
            placed.append(PlacedCell(cell, x, y))
        else:
            good.append(f"M{x} {y}h{size}v{size}h-{size}z")
            if cell.spare:
                placed.append(PlacedCell(cell, x, y))
    rows = -(-len(group.cells) // columns)
    return GridDrawing(
        name=group.name,
        nodes=len(group.cells),
        pitch=pitch,
        columns=columns,
        width=min(len(group.cells), columns) * pitch,
        height=rows * pitch,
        good="".join(good),
        placed=tuple(placed),
        first=group.cells[0].node,
        last=group.cells[-1].node,
    )


@dataclass(frozen=True, slots=True)
class Bar:
    """A span of time on an axis, in thousandths of its length."""

    x: float
    width: float
    trouble: NodeTrouble


@dataclass(frozen=True, slots=True)
class TimelineRow:
    node: str
    bars: tuple[Bar, ...]


MOST_ROWS = 40


def timeline(found: Sequence[NodeTrouble], now: datetime) -> tuple[tuple[TimelineRow, ...], int]:
    """A row for each node that was in trouble within the last day, and how many nodes are left out. A short one stays visible."""
    rows: dict[str, list[Bar]] = {}
    for each in found:
        begin = share(each.since, now - DAY, DAY)
        end = share(each.until or now, now - DAY, DAY)
        width = max(end - begin, 4.0)
        rows.setdefault(each.node, []).append(Bar(round(min(begin, 1000.0 - width), 1), round(width, 1), each))
    made = [TimelineRow(node, tuple(bars)) for node, bars in rows.items()]
    return tuple(made[:MOST_ROWS]), max(0, len(made) - MOST_ROWS)


def share(at: datetime, begin: datetime, length: timedelta) -> float:
    """Place on an axis, in thousandths of its length, within it."""
    return min(1000.0, max(0.0, (at - begin) / length * 1000))


@dataclass(frozen=True, slots=True)
class Lane:
    """One phase of an incident, on the incident's time axis."""

    name: str
    begin_s: float
    """Since the fault."""
    took_s: float
    x: float
    width: float


_LANES = (
    ("detect", ("",), EventKind.INCIDENT_OPENED),
    ("drain", (EventKind.INCIDENT_OPENED,), EventKind.NODE_OUT),
    ("stop job", (EventKind.INCIDENT_OPENED,), EventKind.JOB_STOPPED),
    ("restart job", (EventKind.JOB_STOPPED,), EventKind.JOB_RUNNING),
    ("resume job", (EventKind.JOB_RUNNING,), EventKind.JOB_RESUMED),
    ("repair node", (EventKind.NODE_OUT,), EventKind.INSTANCE_UP),
    ("validate node", (EventKind.INSTANCE_UP, EventKind.NODE_OUT), EventKind.NODE_VALIDATED),
    ("return node", (EventKind.NODE_VALIDATED,), EventKind.NODE_RETURNED),
)
"""Phase, the records at which it begins (the first of them that there is; "" is the fault), the record at which it ends."""


def waterfall(fault_at: datetime, records: Iterable[tuple[str, datetime]]) -> tuple[tuple[Lane, ...], float]:
    """Phases that are over, by an incident's records (kind and time), and the length of their axis in seconds. Of several jobs the last one
    ends a phase, and the first one begins the next."""
    first: dict[str, datetime] = {"": fault_at}
    last: dict[str, datetime] = {}
    for kind, at in records:
        first[kind] = min(first.get(kind, at), at)
        last[kind] = max(last.get(kind, at), at)
    spans: list[tuple[str, float, float]] = []
    for name, begins, end in _LANES:
        begin = next((first[b] for b in begins if b in first), None)
        if begin is not None and end in last:
            begin_s = (begin - fault_at).total_seconds()
            spans.append((name, begin_s, max(0.0, (last[end] - begin).total_seconds())))
    total_s = max((begin + took for _, begin, took in spans), default=0.0)
    scale = 1000 / total_s if total_s > 0 else 0.0
    lanes = (Lane(n, b, took, round(b * scale, 1), round(max(took * scale, 3.0), 1)) for n, b, took in spans)
    return tuple(lanes), total_s


@dataclass(frozen=True, slots=True)
class RunBar:
    """One run of a job on the job's time axis."""

    restarts: int
    begin: datetime
    end: datetime
    x: float
    width: float
    cause: str
    incident_id: str


def runs(ends: Sequence[Mapping[str, Any]]) -> tuple[RunBar, ...]:
    """Runs of a job that are over and whose times are known (``ends`` of ``GET /v1/jobs/ID/why``), oldest first."""
    known = [
        (e, datetime.fromisoformat(e["started_at"]), datetime.fromisoformat(e["ended_at"]))
        for e in ends
        if e["started_at"] and e["ended_at"]
    ]
    if not known:
        return ()
    begin, end = min(b for _, b, _ in known), max(e for _, _, e in known)
    length = max(end - begin, timedelta(seconds=1))
    made: list[RunBar] = []
    for each, since, until in known:
        x = share(since, begin, length)
        width = max(share(until, begin, length) - x, 3.0)
        made.append(
            RunBar(each["restarts"], since, until, round(x, 1), round(width, 1), each["cause"], each["incident_id"])
        )
    return tuple(made)


@dataclass(frozen=True, slots=True)
class CauseBar:
    """How often one check found a fault."""

    cause: str
    count: int
    nodes: int
    """Different ones."""
    width: float
    """In thousandths of the most frequent one."""


def causes(found: Iterable[tuple[str, str]]) -> tuple[CauseBar, ...]:
    """Incidents by cause, the most frequent first. ``found``: cause and node of each."""
    nodes: dict[str, list[str]] = {}
    for cause, node in found:
        nodes.setdefault(cause, []).append(node)
    most = max(map(len, nodes.values()), default=1)
    ordered = sorted(nodes.items(), key=lambda each: (-len(each[1]), each[0]))
    return tuple(CauseBar(c, len(on), len(set(on) - {""}), round(1000 * len(on) / most, 1)) for c, on in ordered)
