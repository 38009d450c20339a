"""Timings and losses of incidents, computed from the events alone. Pure.

Definitions are in ``docs/metrics.md``. A phase whose milestones are not both on record is absent, never zero; a milestone that came before
its start (a job that failed before Holdfast stopped it) counts 0."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from holdfast.metrics.elastic_timings import meeting_again
from holdfast.model.actions.action import Drain, SetDown
from holdfast.model.event import Event, EventKind
from holdfast.model.ids import UPKEEP

N = TypeVar("N", int, float)
MIN_SAMPLES_FOR_PERCENTILES = 50
"""Below this a P90 says little: all values and the maximum are given instead (design, section 10)."""

KINDS = (
    EventKind.FAULT_OCCURRED,
    EventKind.INCIDENT_OPENED,
    EventKind.INCIDENT_STATE,
    EventKind.ACTION_PLANNED,
    EventKind.ACTION_DONE,
    EventKind.NODE_OUT,
    EventKind.JOB_STOPPED,
    EventKind.JOB_RUNNING,
    EventKind.JOB_RESUMED,
    EventKind.INSTANCE_UP,
    EventKind.NODE_VALIDATED,
    EventKind.NODE_RETURNED,
    EventKind.QUORUM_EVICTED,
    EventKind.QUORUM_FORMED,
)
"""Events that the timings use."""
CONTAIN = frozenset({Drain.__name__, SetDown.__name__})
"""Kinds of actions that take a node out of service."""


class Phase(StrEnum):
    """The phases of an incident, in their usual order."""

    DETECT = "detect"
    """Fault → incident opened, or raised to one that calls for action (evidence durable)."""
    DECIDE = "decide"
    """Incident opened → first action planned."""
    DRAIN = "drain"
    """First action planned → node out of service in Slurm. Runs in parallel to ``stop_job``."""
    STOP_JOB = "stop_job"
    """First action planned → old run over (last job of the incident)."""
    EVICT = "evict"
    """Incident opened → its first group was evicted from its rendezvous (elastic jobs)."""
    GO_ON = "go_on"
    """Group evicted → the others' next quorum (last rendezvous of the incident)."""
    REGROW = "regrow"
    """Group evicted → a quorum of as many groups as before (last rendezvous)."""
    RESTART = "restart"
    """Old run over → RUNNING again (last job)."""
    RESUME = "resume"
    """RUNNING again → the job reports the step from which it resumes (last job)."""
    REPLACE = "replace"
    """Node out of service → agent of the new machine reports."""
    VALIDATE = "validate"
    """New machine reports (else: node out of service) → validated."""
    RETURN = "return"
    """Validated → back in service."""


@dataclass(frozen=True, slots=True)
class JobLoss:
    """One job of one incident."""

    job: str
    """JobKey.text."""
    stopped_at: datetime
    running_at: datetime | None = None
    resumed_at: datetime | None = None
    gpus: int = 0
    lost_work_s: float | None = None
    """Newest complete checkpoint → stop: computed again after the restart. None: no checkpoint is known."""
    lost_steps: int | None = None
    lost_gpu_hours: float | None = None
    """GPUs × (checkpoint, or the fault if none is known → resumed, or running if it reported nothing). None: still down."""


@dataclass(frozen=True, slots=True)
class IncidentTimings:
    """One incident. All times in seconds."""

    incident_id: str
    node: str
    fault_at: datetime | None
    opened_at: datetime | None
    phases: Mapping[Phase, float] = field(default_factory=dict)
    time_to_running_s: float | None = None
    """Fault → the incident's last job RUNNING again. None: no job was stopped, or one is still down."""
    time_to_resumed_s: float | None = None
    """Fault → the last job reports that it resumed. None: as above, or a job reports nothing."""
    time_to_return_s: float | None = None
    """Fault → node back in service."""
    jobs: tuple[JobLoss, ...] = ()

    @property
    def time_to_detect_s(self) -> float | None:
        return self.phases.get(Phase.DETECT)

    @property
    def lost_work_s(self) -> float | None:
        """Sum over the jobs for which it is known; None: jobs were stopped, and it is known for none. The same for the next two."""
        return known_sum(j.lost_work_s for j in self.jobs)

    @property
    def lost_steps(self) -> int | None:
        return known_sum(j.lost_steps for j in self.jobs)

    @property
    def lost_gpu_hours(self) -> float | None:
        return known_sum(j.lost_gpu_hours for j in self.jobs)


@dataclass(frozen=True, slots=True)
class Spread:
    """Many durations in one line. Percentiles are nearest-rank: values that were measured."""

    count: int
    mean: float
    p50: float
    max: float
    p90: float | None = None
    """None with fewer than 50 samples: then ``values`` has all of them."""
    p99: float | None = None
    values: tuple[float, ...] = ()


def measure(events: Iterable[Event]) -> tuple[IncidentTimings, ...]:
    """One entry per incident, in the order of their ids (which is the order of time)."""
    by_incident: dict[str, list[Event]] = {}
    for event in events:
        if event.incident_id is not None and event.incident_id != UPKEEP:
            by_incident.setdefault(event.incident_id, []).append(event)
    return tuple(_incident(key, sorted(mine, key=lambda e: e.at)) for key, mine in sorted(by_incident.items()))


def known_sum(values: Iterable[N | None]) -> N | int | None:
    """Sum of the known values; 0 without values, None if all are unknown."""
    asked = list(values)
    known = [value for value in asked if value is not None]
    return sum(known) if known or not asked else None


def spread(samples: Iterable[float | None]) -> Spread | None:
    """None: no sample."""
    values = sorted(v for v in samples if v is not None)
    if not values:
        return None
    enough = len(values) >= MIN_SAMPLES_FOR_PERCENTILES
    return Spread(
        count=len(values),
        mean=math.fsum(values) / len(values),
        p50=_rank(values, 0.5),
        max=values[-1],
        p90=_rank(values, 0.9) if enough else None,
        p99=_rank(values, 0.99) if enough else None,
        values=() if enough else tuple(values),
    )


def _rank(values: Sequence[float], share: float) -> float:
    return values[max(math.ceil(share * len(values)) - 1, 0)]


def _incident(incident_id: str, events: Sequence[Event]) -> IncidentTimings:
    fault_at, opened_at = _detection(events)
    jobs = _jobs(events, fault_at)
    running_at = _last([j.running_at for j in jobs])
    resumed_at = _last([j.resumed_at for j in jobs])
    returned_at = _first(events, EventKind.NODE_RETURNED)
    return IncidentTimings(
        incident_id=incident_id,
        node=next((e.node for e in events if e.node), ""),
        fault_at=fault_at,
        opened_at=opened_at,
        phases=_phases(events, fault_at, opened_at, jobs),
        time_to_running_s=_span(fault_at, running_at),
        time_to_resumed_s=_span(fault_at, resumed_at),
        time_to_return_s=_span(fault_at, returned_at),
        jobs=jobs,
    )


def _detection(events: Sequence[Event]) -> tuple[datetime | None, datetime | None]:
    """Fault and its detection. Of an incident that was only watched at first: those of the finding that called for action."""
    raised = [e for e in events if (e.detail.get("from"), e.detail.get("to")) == ("watching", "open")]
    counted = raised or events
    return (
        _first(counted, EventKind.FAULT_OCCURRED),
        _first(counted, EventKind.INCIDENT_STATE if raised else EventKind.INCIDENT_OPENED),
    )


def _phases(
    events: Sequence[Event], fault_at: datetime | None, opened_at: datetime | None, jobs: Sequence[JobLoss]
) -> dict[Phase, float]:
    shut_out_s, go_on_s, regrow_s = meeting_again(events, opened_at)
    met_again = {Phase.EVICT: shut_out_s, Phase.GO_ON: go_on_s, Phase.REGROW: regrow_s}
    intervals = _intervals(events, fault_at, opened_at, jobs)
    spans = {p: met_again[p] if p in met_again else _span(*intervals[p]) for p in Phase}
    return {phase: span for phase, span in spans.items() if span is not None}


Interval = tuple[datetime | None, datetime | None]


def _intervals(
    events: Sequence[Event], fault_at: datetime | None, opened_at: datetime | None, jobs: Sequence[JobLoss]
) -> dict[Phase, Interval]:
    """Start and end of each phase, without those of elastic jobs; None: not on record."""
    planned_at = _first(events, EventKind.ACTION_PLANNED)
    out_at = out_of_service_at(events)
    up_at = _first(events, EventKind.INSTANCE_UP)
    validated_at = _first(events, EventKind.NODE_VALIDATED, last=True)
    last = max(jobs, key=lambda j: (j.running_at is None, j.running_at or j.stopped_at), default=None)
    stopped_at = last.stopped_at if last else None
    running_at = last.running_at if last else None
    return {
        Phase.DETECT: (fault_at, opened_at),
        Phase.DECIDE: (opened_at, planned_at),
        Phase.DRAIN: (planned_at, out_at),
        Phase.STOP_JOB: (planned_at, stopped_at),
        Phase.RESTART: (stopped_at, running_at),
        Phase.RESUME: (running_at, last.resumed_at if last else None),
        Phase.REPLACE: (out_at, up_at),
        Phase.VALIDATE: (up_at or out_at, validated_at),
        Phase.RETURN: (validated_at, _first(events, EventKind.NODE_RETURNED)),
    }


def phase_intervals(events: Iterable[Event]) -> dict[Phase, tuple[datetime, datetime]]:
    """When each phase of one incident was; a phase without both milestones is absent, one that ended before its start has no length.
    Phases of elastic jobs follow each other from the incident's opening on."""
    ordered = sorted(events, key=lambda e: e.at)
    fault_at, opened_at = _detection(ordered)
    found = _intervals(ordered, fault_at, opened_at, _jobs(ordered, fault_at))
    known = {p: (start, max(start, end)) for p, (start, end) in found.items() if start is not None and end is not None}
    evict_s, *met_again_s = meeting_again(ordered, opened_at)
    if opened_at is not None and evict_s is not None:
        evicted_at = opened_at + timedelta(seconds=evict_s)
        known[Phase.EVICT] = (opened_at, evicted_at)
        for phase, span_s in zip((Phase.GO_ON, Phase.REGROW), met_again_s, strict=True):
            if span_s is not None:
                known[phase] = (evicted_at, evicted_at + timedelta(seconds=span_s))
    return {phase: known[phase] for phase in Phase if phase in known}


def out_of_service_at(events: Sequence[Event]) -> datetime | None:
    """When the node was out of service: Slurm's own picture or the drain's success, whichever is on record first."""
    drained = [e for e in events if e.kind is EventKind.ACTION_DONE and e.detail.get("kind") in CONTAIN]
    seen = [e for e in events if e.kind is EventKind.NODE_OUT]
    return min((e.at for e in (*drained, *seen)), default=None)


def _jobs(events: Sequence[Event], fault_at: datetime | None) -> tuple[JobLoss, ...]:
    names = dict.fromkeys(e.job for e in events if e.kind is EventKind.JOB_STOPPED and e.job)
    return tuple(_job(name, [e for e in events if e.job == name], fault_at) for name in names)


def _job(name: str, events: Sequence[Event], fault_at: datetime | None) -> JobLoss:
    stopped = next(e for e in events if e.kind is EventKind.JOB_STOPPED)
    running_at = _first(events, EventKind.JOB_RUNNING, since=stopped.at)
    resumed = next((e for e in events if e.kind is EventKind.JOB_RESUMED and e.at >= stopped.at), None)
    known_later = _time(resumed.detail.get("checkpoint_at")) if resumed else None
    checkpoint_at = _time(stopped.detail.get("checkpoint_at")) or known_later
    gpus = _whole(stopped.detail.get("gpus")) or 0
    since = checkpoint_at or fault_at or stopped.at
    back_at = resumed.at if resumed else running_at
    return JobLoss(
        job=name,
        stopped_at=stopped.at,
        running_at=running_at,
        resumed_at=resumed.at if resumed else None,
        gpus=gpus,
        lost_work_s=_span(checkpoint_at, stopped.at),
        lost_steps=_lost_steps(stopped, resumed),
        lost_gpu_hours=None if back_at is None else gpus * max((back_at - since).total_seconds(), 0.0) / 3600,
    )


def _lost_steps(stopped: Event, resumed: Event | None) -> int | None:
    """Lost steps that the job reports, else its last reported step minus the checkpoint's."""
    told = _whole(resumed.detail.get("lost_steps")) if resumed else None
    if told is not None:
        return told
    last, saved = _whole(stopped.detail.get("stopped_step")), _whole(stopped.detail.get("checkpoint_step"))
    return None if last is None or saved is None else max(last - saved, 0)


def _first(
    events: Sequence[Event], kind: EventKind, *, since: datetime | None = None, last: bool = False
) -> datetime | None:
    times = [e.at for e in events if e.kind is kind and (since is None or e.at >= since)]
    if not times:
        return None
    return times[-1] if last else times[0]


def _last(times: Sequence[datetime | None]) -> datetime | None:
    """The last of all; None when one is missing or there is none."""
    known = [t for t in times if t is not None]
    return max(known) if known and len(known) == len(times) else None


def _span(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else max((end - start).total_seconds(), 0.0)


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _time(value: Any) -> datetime | None:
    """A detail's time: ISO 8601 text as the database keeps it, or a datetime."""
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
