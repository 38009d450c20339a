"""What happened in a span of time, one line for each incident, and what it spared operators; from incidents and
their figures. Pure.

The comparison with work by hand is an estimate: Holdfast's own times are measured, the time without it is a figure that someone else
published, or the site's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from holdfast.metrics.figures import IncidentFigures
from holdfast.model.incidents.incident import Incident, IncidentState

MANUAL_MINUTES = 280.0
"""Time from a failure to the training running again without automation, minutes."""
MANUAL_SOURCE = "AWS, SageMaker HyperPod post of April 2025: 280 minutes a failure without automation"


class Outcome(StrEnum):
    """What has become of an incident."""

    HEALED = "healed"
    """Its node serves again, or all its jobs run again, and no one else did it."""
    BY_OPERATOR = "by_operator"
    """An operator or another tool put the node back."""
    NEEDS_YOU = "needs_you"
    UNDER_WAY = "under_way"
    HELD_BACK = "held_back"
    """Nothing is done about it at present: maintenance, a brake, a budget, a pause, the mode."""
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
    held: str = ""
    """Why nothing is done about it at present; empty: something is, or nothing has to be."""


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


def night(
    incidents: Iterable[Incident], figures: Iterable[IncidentFigures], held: Mapping[str, str] = MappingProxyType({})
) -> Night:
    """``figures``: of these incidents; one that has none, or no event, has no times. ``held``: incident → why nothing is done about it at
    present."""
    known = {f.incident_id: f for f in figures}
    lines = [_line(i, known.get(i.id) or IncidentFigures(i.id), held.get(i.id, "")) for i in incidents]
    lost = [line.lost_gpu_hours for line in lines if line.jobs and line.lost_gpu_hours is not None]
    return Night(
        incidents=len(lines),
        healed=sum(line.outcome is Outcome.HEALED for line in lines),
        needs_you=sum(line.outcome is Outcome.NEEDS_YOU for line in lines),
        jobs=sum(line.jobs for line in lines),
        jobs_back=sum(line.jobs_back for line in lines),
        nodes_replaced=len({line.node for line in lines if line.replaced}),
        lost_gpu_hours=sum(lost) if lost or not any(line.jobs for line in lines) else None,
        lines=tuple(sorted(lines, key=lambda line: (line.at, line.incident_id))),
    )


def _line(incident: Incident, figures: IncidentFigures, held: str) -> NightLine:
    outcome = _outcome(incident, figures, held)
    return NightLine(
        incident_id=incident.id,
        node=incident.node,
        at=incident.fault_at,
        what=incident.headline,
        state=incident.state.value,
        outcome=outcome,
        returned_s=figures.time_to_return_s,
        jobs=figures.jobs,
        jobs_back=figures.jobs_back,
        running_s=figures.time_to_running_s,
        lost_gpu_hours=figures.lost_gpu_hours,
        replaced=figures.replaced,
        held=held if outcome is Outcome.HELD_BACK else "",
    )


def _outcome(incident: Incident, figures: IncidentFigures, held: str) -> Outcome:
    if incident.state is IncidentState.AWAITING_HUMAN:
        return Outcome.NEEDS_YOU
    if incident.state is IncidentState.WATCHING or incident.acknowledged:
        return Outcome.WATCHED
    if incident.open:
        return Outcome.HELD_BACK if held else Outcome.UNDER_WAY
    if figures.by_others:
        return Outcome.BY_OPERATOR
    recovered = figures.jobs > 0 and figures.jobs_back == figures.jobs
    return Outcome.HEALED if figures.returned or recovered else Outcome.OVER


def saved(figures: Iterable[IncidentFigures], manual_s: float = MANUAL_MINUTES * 60) -> Saved:
    """Of incidents in which Holdfast acted. Those of which a job is still down are left out: nothing is saved yet."""
    mine = [(f, f.time_to_running_s) for f in figures if f.acted and f.time_to_running_s is not None]
    return Saved(
        incidents=len(mine),
        jobs=sum(f.jobs for f, _ in mine),
        down_s=sum(took_s for _, took_s in mine),
        manual_s=manual_s * len(mine),
        saved_s=sum(manual_s - took_s for _, took_s in mine),
        saved_gpu_hours=sum((manual_s * f.gpus - f.gpu_down_s) / 3600 for f, _ in mine),
    )
