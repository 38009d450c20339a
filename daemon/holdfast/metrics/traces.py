"""A closed incident as a trace: the incident, its phases, its jobs and its steps as spans, what was found and decided as events. Pure.

Ids are made from the incident's, so that an incident that is sent twice (after a crash between sending and noting it) is the same trace
with the same spans."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum

from holdfast.metrics.timings import Phase, measure, phase_intervals
from holdfast.metrics.totals import action_name
from holdfast.model.event import Event, EventKind

MOST_SPANS = 500
MOST_EVENTS = 1_000
"""Of one trace: an incident that was open for weeks has thousands of events. The oldest are kept, and their number is said."""
MOST_CHARACTERS = 1_000


class SpanStatus(IntEnum):
    """OTLP's status codes."""

    UNSET = 0
    OK = 1
    ERROR = 2


TraceAttributes = Mapping[str, str | int | float | bool]


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened within a span."""

    name: str
    at: datetime
    attributes: TraceAttributes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """One span; ``parent_id`` None: the root."""

    trace_id: bytes
    """16 bytes."""
    span_id: bytes
    """8 bytes."""
    parent_id: bytes | None
    name: str
    start: datetime
    end: datetime
    attributes: TraceAttributes = field(default_factory=dict)
    events: tuple[SpanEvent, ...] = ()
    status: SpanStatus = SpanStatus.UNSET
    status_text: str = ""


def trace_of(incident_id: str, events: Sequence[Event]) -> tuple[TraceSpan, ...]:
    """All spans of an incident, the root first. Empty: it is not closed, or nothing is on record of it."""
    ordered = sorted(events, key=lambda e: (e.at, e.id))
    closed = [e for e in ordered if e.kind is EventKind.INCIDENT_CLOSED]
    if not closed:
        return ()
    start, end = ordered[0].at, max(ordered[-1].at, closed[-1].at)
    root = TraceSpan(
        _id("trace", incident_id, 16),
        _id("root", incident_id, 8),
        None,
        _name(ordered),
        start,
        end,
        {"holdfast.incident.id": incident_id, **_about(ordered), **_times(ordered)},
        _events(ordered),
    )
    children = (*_phases(root, ordered), *_jobs(root, ordered), *_steps(root, ordered))
    return (root, *children[: MOST_SPANS - 1])


def _id(kind: str, text: str, length: int) -> bytes:
    return hashlib.sha256(f"{kind}/{text}".encode()).digest()[:length]


def _child(
    root: TraceSpan, key: str, name: str, start: datetime, end: datetime, attributes: TraceAttributes
) -> TraceSpan:
    number = root.attributes["holdfast.incident.id"]
    return TraceSpan(
        root.trace_id, _id("span", f"{number}/{key}", 8), root.span_id, name, start, max(start, end), attributes
    )


def _name(events: Iterable[Event]) -> str:
    check = next((str(e.detail["check"]) for e in events if e.detail.get("check")), "")
    return f"incident {check}".strip()


_COPIED = {"check": "holdfast.check", "kind": "holdfast.incident.kind", "severity": "holdfast.severity"}
_COPIED |= {"remedy": "holdfast.remedy", "code": "holdfast.code"}
_NAMES = frozenset({EventKind.FAULT_OCCURRED, EventKind.INCIDENT_OPENED, EventKind.INCIDENT_STATE})


def _about(events: Sequence[Event]) -> dict[str, str]:
    """The newest values of what its own events say of it, and its node."""
    found = {_COPIED[k]: str(v) for e in events if e.kind in _NAMES for k, v in e.detail.items() if k in _COPIED and v}
    node = next((e.node for e in events if e.node), None)
    return found if node is None else {"host.name": node, **found}


def _times(events: Sequence[Event]) -> dict[str, float]:
    (timings,) = measure(events) or (None,)
    if timings is None:
        return {}
    named = {
        "holdfast.time_to_detect_s": timings.phases.get(Phase.DETECT),
        "holdfast.time_to_recovery_s": timings.time_to_running_s,
        "holdfast.time_to_return_s": timings.time_to_return_s,
        "holdfast.lost_gpu_hours": timings.lost_gpu_hours if timings.jobs else None,
    }
    return {name: value for name, value in named.items() if value is not None}


def _events(events: Sequence[Event]) -> tuple[SpanEvent, ...]:
    shown = [SpanEvent(e.kind.value, e.at, _said(e)) for e in events[:MOST_EVENTS]]
    if len(events) > MOST_EVENTS:
        left = len(events) - MOST_EVENTS
        shown.append(SpanEvent("holdfast.left_out", events[-1].at, {"holdfast.left_out": left}))
    return tuple(shown)


def _said(event: Event) -> dict[str, str]:
    job = {"slurm.job": event.job} if event.job else {}
    kind = str(event.detail.get("kind") or "")
    action = {"holdfast.action": action_name(kind, event.detail.get("verb"))} if "key" in event.detail else {}
    return {"holdfast.text": event.text[:MOST_CHARACTERS], **job, **action}


def _phases(root: TraceSpan, events: Sequence[Event]) -> Iterator[TraceSpan]:
    for phase, (start, end) in phase_intervals(events).items():
        attributes = {"holdfast.phase": phase.value}
        yield _child(root, f"phase {phase.value}", f"phase {phase.value}", start, end, attributes)


def _jobs(root: TraceSpan, events: Sequence[Event]) -> Iterator[TraceSpan]:
    (timings,) = measure(events) or (None,)
    for job in timings.jobs if timings is not None else ():
        back_at = job.running_at or root.end
        attributes: TraceAttributes = {
            "slurm.job": job.job,
            "holdfast.gpus": job.gpus,
            "holdfast.running_again": job.running_at is not None,
        }
        yield _child(root, f"job {job.job}", "job down", job.stopped_at, back_at, attributes)


_ENDS = {
    EventKind.ACTION_DONE: SpanStatus.OK,
    EventKind.ACTION_FAILED: SpanStatus.ERROR,
    EventKind.ACTION_REFUSED: SpanStatus.UNSET,
}


def _steps(root: TraceSpan, events: Sequence[Event]) -> Iterator[TraceSpan]:
    """From a step's start, else its plan, to its end."""
    begun: dict[str, Event] = {}
    for event in events:
        key = str(event.detail.get("key") or "")
        if event.kind in (EventKind.ACTION_PLANNED, EventKind.ACTION_STARTED):
            begun[key] = event
        elif key and event.kind in _ENDS:
            yield _step(root, key, begun.pop(key, event), event)


def _step(root: TraceSpan, key: str, begun: Event, ended: Event) -> TraceSpan:
    name = action_name(str(ended.detail.get("kind") or "step"), ended.detail.get("verb"))
    attributes = {
        "holdfast.action": name,
        "holdfast.target": str(ended.detail.get("target") or ""),
        "holdfast.reason": begun.text[:MOST_CHARACTERS],
        "holdfast.outcome": ended.kind.value.removeprefix("action."),
    }
    span = _child(root, f"step {key}", name, begun.at, ended.at, attributes)
    text = ended.text[:MOST_CHARACTERS] if _ENDS[ended.kind] is SpanStatus.ERROR else ""
    return TraceSpan(
        span.trace_id,
        span.span_id,
        span.parent_id,
        span.name,
        span.start,
        span.end,
        span.attributes,
        status=_ENDS[ended.kind],
        status_text=text,
    )
