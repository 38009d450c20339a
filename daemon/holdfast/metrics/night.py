"""What happened in a span of time, one line for each incident, and what it spared operators; from events and incidents. Pure.

The comparison with work by hand is an estimate: Holdfast's own times are measured, the time without it is a figure that someone else
published, or the site's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from holdfast.metrics.timings import IncidentTimings
from holdfast.model.action import Launch, Replace
from holdfast.model.event import BY_OTHERS, Event, EventKind
from holdfast.model.ids import UPKEEP
from holdfast.model.incident import Incident, IncidentState

MANUAL_MINUTES = 280.0
"""Time from a failure to the training running again without automation, minutes."""
MANUAL_SOURCE = "AWS, SageMaker HyperPod post of April 2025: 280 minutes a failure without automation"
SAVED_KINDS = (
    EventKind.FAULT_OCCURRED,
    EventKind.INCIDENT_OPENED,
    EventKind.INCIDENT_STATE,
    EventKind.ACTION_DONE,
    EventKind.JOB_STOPPED,
    EventKind.JOB_RUNNING,
)
"""Events that :func:`saved` and :func:`acted` go by."""
_MACHINES = frozenset({Launch.__name__, Replace.__name__})
"""Kinds of actions that bring another machine."""


class Outcome(StrEnum):
    """What has become of an incident."""

    HEALED = "healed"
    """Its node serves again, or all its jobs run again, and no one else did it."""
    BY_OPERATOR = "by_operator"
    """An operator or another tool put the node back."""
    NEEDS_YOU = "needs_you"
    UNDER_WAY = "under_way"
    WATCHED = "watched"
    """Nothing is done about it: a warning, or an operator took it over."""
    OVER = "over"
    """Closed, and nothing had to be healed."""


@dataclass(frozen=True, slots=True)
class NightLine:
    """One incident of the span."""

    incident_id: str
    node: str
    at: datetime
    """Of the fault."""
    what: str
    state: str
    outcome: Outcome
    returned_s: float | None
    """Fault → node back in service; None: it is not, or never was out."""
    jobs: int
    """Jobs that were stopped."""
    jobs_back: int
    """Of these, running again."""
    running_s: float | None
    """Fault → the last of them running again; None: one is not, or none was stopped."""
    lost_gpu_hours: float | None
    replaced: bool
    """Another machine has taken the node's place."""


@dataclass(frozen=True, slots=True)
class Night:
    incidents: int
    healed: int
    needs_you: int
    jobs: int
    jobs_back: int
    nodes_replaced: int
    """Different nodes."""
    lost_gpu_hours: float | None
    """Sum over the jobs for which it is known; None: for none."""
    lines: tuple[NightLine, ...]
    """Oldest first."""


@dataclass(frozen=True, slots=True)
class Saved:
    """An estimate: measured times against a figure for the same work by hand."""

    incidents: int
    """Those after which every stopped job runs again by a step of Holdfast's own."""
    jobs: int
    """Jobs recovered in these."""
    down_s: float
    """Measured: fault → the incident's last job running again, summed."""
    manual_s: float
    """The figure times ``incidents``."""
    saved_s: float
    """Summed for each incident; one that took longer than the figure counts against it."""
    saved_gpu_hours: float
    """For each job: its GPUs times the figure less its own time."""


def acted(events: Iterable[Event]) -> frozenset[str]:
    """Incidents in which Holdfast has done a step outside."""
    done = (e.incident_id for e in events if e.kind is EventKind.ACTION_DONE)
    return frozenset(name for name in done if name is not None and name != UPKEEP)


def night(incidents: Iterable[Incident], events: Sequence[Event], timings: Iterable[IncidentTimings]) -> Night:
    """``events``: those of these incidents, of :data:`holdfast.metrics.timings.KINDS` at least. ``timings``: as ``measure`` makes them."""
    timed = {t.incident_id: t for t in timings}
    mine: dict[str, list[Event]] = {}
    for event in events:
        mine.setdefault(event.incident_id or "", []).append(event)
    lines = [_line(i, mine.get(i.id, ()), timed.get(i.id)) for i in incidents]
    known = [line.lost_gpu_hours for line in lines if line.jobs and line.lost_gpu_hours is not None]
    return Night(
        incidents=len(lines),
        healed=sum(line.outcome is Outcome.HEALED for line in lines),
        needs_you=sum(line.outcome is Outcome.NEEDS_YOU for line in lines),
        jobs=sum(line.jobs for line in lines),
        jobs_back=sum(line.jobs_back for line in lines),
        nodes_replaced=len({line.node for line in lines if line.replaced}),
        lost_gpu_hours=sum(known) if known or not any(line.jobs for line in lines) else None,
        lines=tuple(sorted(lines, key=lambda line: (line.at, line.incident_id))),
    )


def _line(incident: Incident, events: Sequence[Event], timed: IncidentTimings | None) -> NightLine:
    jobs = timed.jobs if timed is not None else ()
    return NightLine(
        incident_id=incident.id,
        node=incident.node,
        at=incident.fault_at,
        what=incident.headline,
        state=incident.state.value,
        outcome=_outcome(incident, events, timed),
        returned_s=timed.time_to_return_s if timed is not None else None,
        jobs=len(jobs),
        jobs_back=sum(j.running_at is not None for j in jobs),
        running_s=timed.time_to_running_s if timed is not None else None,
        lost_gpu_hours=timed.lost_gpu_hours if timed is not None else None,
        replaced=_replaced(events),
    )


def _outcome(incident: Incident, events: Sequence[Event], timed: IncidentTimings | None) -> Outcome:
    if incident.state is IncidentState.AWAITING_HUMAN:
        return Outcome.NEEDS_YOU
    if incident.state is IncidentState.WATCHING or incident.acknowledged:
        return Outcome.WATCHED
    if incident.open:
        return Outcome.UNDER_WAY
    back = [e for e in events if e.kind is EventKind.NODE_RETURNED]
    if any(e.detail.get(BY_OTHERS) for e in back):
        return Outcome.BY_OPERATOR
    jobs = timed.jobs if timed is not None else ()
    recovered = bool(jobs) and all(j.running_at is not None for j in jobs)
    return Outcome.HEALED if back or recovered else Outcome.OVER


def _replaced(events: Sequence[Event]) -> bool:
    brought = any(e.kind is EventKind.ACTION_DONE and e.detail.get("kind") in _MACHINES for e in events)
    return brought and any(e.kind is EventKind.NODE_VALIDATED for e in events)


def saved(timings: Iterable[IncidentTimings], acted_in: frozenset[str], manual_s: float = MANUAL_MINUTES * 60) -> Saved:
    """``acted_in``: as :func:`acted`. Incidents of which a job is still down are left out: nothing is saved yet."""
    mine = [t for t in timings if t.incident_id in acted_in and t.time_to_running_s is not None]
    down_s = [t.time_to_running_s or 0.0 for t in mine]
    return Saved(
        incidents=len(mine),
        jobs=sum(len(t.jobs) for t in mine),
        down_s=sum(down_s),
        manual_s=manual_s * len(mine),
        saved_s=sum(manual_s - took_s for took_s in down_s),
        saved_gpu_hours=sum(_gpu_hours(t, manual_s) for t in mine),
    )


def _gpu_hours(timed: IncidentTimings, manual_s: float) -> float:
    spans = ((j.gpus, timed.fault_at, j.running_at) for j in timed.jobs)
    return sum(
        gpus * (manual_s - max((running - fault).total_seconds(), 0.0)) / 3600
        for gpus, fault, running in spans
        if fault is not None and running is not None
    )
