"""What one incident adds to an answer about many: its durations, losses and outcome as plain values. Pure.

The store keeps the figures of closed incidents, so that a question about a year reads one small document for each incident, and not its
events. :func:`figures_of` is the one place that computes them, for the store and for an incident that it has none of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.metrics.timings import IncidentTimings, Phase, Spread, known_sum, measure, spread
from holdfast.model.actions.action import Launch, Replace
from holdfast.model.event import BY_OTHERS, Event, EventKind

RULES = 1
"""Number of the computation. Raise it with each change of what :func:`figures_of` or :func:`holdfast.metrics.timings.measure` makes of the
same events: what is stored under another number is computed again."""
_MACHINES = frozenset({Launch.__name__, Replace.__name__})
"""Kinds of actions that bring another machine."""


@dataclass(frozen=True, slots=True)
class IncidentFigures:
    """One incident. Times in seconds; None and an absent phase: not on record, as in :class:`holdfast.metrics.timings.IncidentTimings`."""

    incident_id: str
    opened_at: datetime | None = None
    last_at: datetime | None = None
    """Time of the newest event that counted."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """By :class:`holdfast.metrics.timings.Phase`."""
    time_to_running_s: float | None = None
    time_to_resumed_s: float | None = None
    time_to_return_s: float | None = None
    jobs: int = 0
    """Jobs that were stopped."""
    jobs_back: int = 0
    """Of these, running again."""
    gpus: int = 0
    """GPUs of those running again, summed."""
    gpu_down_s: float = 0.0
    """GPUs times fault → running again, summed over the same."""
    lost_work_s: float | None = None
    lost_steps: int | None = None
    lost_gpu_hours: float | None = None
    acted: bool = False
    """Holdfast has done a step outside."""
    returned: bool = False
    """The node came back into service."""
    by_others: bool = False
    """An operator or another tool put it back."""
    replaced: bool = False
    """Another machine has taken the node's place."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A window of incidents."""

    incidents: int
    mttd: Spread | None
    """Mean time to detect and its spread. None: no sample."""
    mttr: Spread | None
    """Mean time to recovery: fault → last job RUNNING again."""
    mttr_resumed: Spread | None
    """Fault → last job resumed, as it reports."""
    time_to_return: Spread | None
    phases: Mapping[Phase, Spread]
    lost_work_s: float | None
    """Sum over the jobs for which it is known; None: for none of those that were stopped. The same for the next two."""
    lost_steps: int | None
    lost_gpu_hours: float | None


def figures_of(incident_id: str, events: Sequence[Event]) -> tuple[IncidentFigures, IncidentTimings | None]:
    """Figures and timings of one incident from its events of :data:`holdfast.metrics.timings.KINDS`, in any order.

    Without events nothing is known: no timings, and figures that say so."""
    (timings,) = measure(events) or (None,)
    if timings is None:
        return IncidentFigures(incident_id), None
    gpus, gpu_down_s = _down(timings)
    returns = [e for e in events if e.kind is EventKind.NODE_RETURNED]
    figures = IncidentFigures(
        incident_id=incident_id,
        opened_at=timings.opened_at,
        last_at=max(e.at for e in events),
        phases={phase.value: span_s for phase, span_s in timings.phases.items()},
        time_to_running_s=timings.time_to_running_s,
        time_to_resumed_s=timings.time_to_resumed_s,
        time_to_return_s=timings.time_to_return_s,
        jobs=len(timings.jobs),
        jobs_back=sum(j.running_at is not None for j in timings.jobs),
        gpus=gpus,
        gpu_down_s=gpu_down_s,
        lost_work_s=timings.lost_work_s,
        lost_steps=timings.lost_steps,
        lost_gpu_hours=timings.lost_gpu_hours,
        acted=any(e.kind is EventKind.ACTION_DONE for e in events),
        returned=bool(returns),
        by_others=any(e.detail.get(BY_OTHERS) for e in returns),
        replaced=_replaced(events),
    )
    return figures, timings


def _down(timings: IncidentTimings) -> tuple[int, float]:
    """GPUs of the jobs running again, and these times how long each was down since the fault, in seconds."""
    fault_at = timings.fault_at
    back = [(j.gpus, j.running_at) for j in timings.jobs if j.running_at is not None]
    if fault_at is None:
        return 0, 0.0
    return (
        sum(gpus for gpus, _ in back),
        sum(gpus * max((running_at - fault_at).total_seconds(), 0.0) for gpus, running_at in back),
    )


def _replaced(events: Sequence[Event]) -> bool:
    brought = any(e.kind is EventKind.ACTION_DONE and e.detail.get("kind") in _MACHINES for e in events)
    return brought and any(e.kind is EventKind.NODE_VALIDATED for e in events)


def summarize(incidents: Sequence[IncidentFigures | IncidentTimings]) -> Summary:
    """The same from either."""
    phases = {p: spread(i.phases.get(p) for i in incidents) for p in Phase}
    return Summary(
        incidents=len(incidents),
        mttd=phases[Phase.DETECT],
        mttr=spread(i.time_to_running_s for i in incidents),
        mttr_resumed=spread(i.time_to_resumed_s for i in incidents),
        time_to_return=spread(i.time_to_return_s for i in incidents),
        phases={p: s for p, s in phases.items() if s is not None},
        lost_work_s=known_sum(i.lost_work_s for i in incidents if i.jobs),
        lost_steps=known_sum(i.lost_steps for i in incidents if i.jobs),
        lost_gpu_hours=known_sum(i.lost_gpu_hours for i in incidents if i.jobs),
    )
