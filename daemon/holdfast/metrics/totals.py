"""Totals of the record of events, counted event by event: what Prometheus shows as counters and histograms. Pure.

The totals depend on the events alone and on their order, so that a controller that has counted all along, one that was restarted and one
that takes over have the same. They only grow. An incident's durations are counted once it is closed, and its job's return, where that is
later, as it happens; losses are counted as they happen. Definitions: ``docs/metrics.md``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from holdfast.metrics.tally import Family, Tally
from holdfast.metrics.timings import CONTAIN, KINDS, IncidentTimings, Phase, measure, out_of_service_at
from holdfast.model.event import Event, EventKind
from holdfast.model.ids import UPKEEP
from holdfast.model.incidents.incident import IncidentKind

PHASES = Family(
    "holdfast_incident_phase_duration_seconds",
    "Durations of the phases of closed incidents, by the group of the check (the part before the dot) and the remedy.",
    ("phase", "check_group", "remedy"),
    histogram=True,
)
DETECT = Family("holdfast_time_to_detect_seconds", "Fault to detection, of closed incidents.", histogram=True)
RECOVERY = Family(
    "holdfast_time_to_recovery_seconds",
    "Fault to RUNNING again of the last job, of closed incidents that stopped one.",
    histogram=True,
)
OUT = Family(
    "holdfast_node_out_of_service_seconds",
    "Node out of service for an incident to back in service, by who took it out: holdfast, operator, slurm or unknown.",
    ("by",),
    histogram=True,
)
FAULTS = Family(
    "holdfast_faults_total",
    "Faults, by node and check: one for each incident and each time that it grew worse.",
    ("node", "check"),
)
XIDS = Family(
    "holdfast_xid_total",
    "Findings of Xids that an incident was opened for or that joined one, by node and number; repetitions count once.",
    ("node", "xid"),
)
ACTIONS = Family(
    "holdfast_actions_total",
    "Actions that ended, by kind, provider (of those at machines) and outcome: done, failed, refused, withheld.",
    ("action", "provider", "outcome"),
)
REQUEUED = Family(
    "holdfast_jobs_requeued_total", "Runs of jobs that were requeued, by the kind of the incident.", ("reason",)
)
GPU_SECONDS = Family(
    "holdfast_gpu_seconds_lost_total",
    "GPUs times the work lost and the time without work of jobs that run again, by the group of the check.",
    ("cause",),
)
DOWNTIME = Family(
    "holdfast_training_downtime_seconds_total",
    "End of a job's run to RUNNING again: automatic, or manual for a job that was held until its owner or an operator released it.",
    ("kind",),
)
FAMILIES = (PHASES, DETECT, RECOVERY, OUT, FAULTS, XIDS, ACTIONS, REQUEUED, GPU_SECONDS, DOWNTIME)

_ENDED = frozenset(
    {EventKind.ACTION_DONE, EventKind.ACTION_FAILED, EventKind.ACTION_REFUSED, EventKind.ACTION_WITHHELD}
)
_AT_MACHINES = frozenset({"Launch", "Terminate", "Assign", "Replace", "Reboot", "StopStart", "ReportFault"})
_KEPT = frozenset({*KINDS, EventKind.INCIDENT_CLOSED})
"""Kinds that are kept for as long as their incident is open."""
_BY = {"ours": "holdfast", "foreign": "operator", "slurm": "slurm"}
_UNKNOWN = "unknown"
_LATEST = timedelta(days=30)  # rule undeclared-window: of events that were counted already; nothing is loaded for it
"""A closed incident waits this long for a job or a node that is not back yet."""
_FORGET_EVERY = 256
"""Events. By their numbers, so that a restart changes nothing."""
_VERSION = 1


@dataclass(slots=True)
class _Followed:
    """An incident that is open, or closed with a job or node that is not back."""

    events: list[Event] = field(default_factory=list)
    closed_at: datetime | None = None
    counted: set[str] = field(default_factory=set)
    """What was observed of it, so that nothing is observed twice."""
    lost: dict[str, float] = field(default_factory=dict)
    """Job → GPU-seconds that were counted."""

    def newest(self, key: str) -> str:
        """The newest value that its events have in their detail; empty: none has."""
        return next((str(e.detail[key]) for e in reversed(self.events) if e.detail.get(key)), "")

    @property
    def group(self) -> str:
        """``gpu`` of ``gpu.xid``."""
        checks = [e for e in self.events if e.detail.get("check") and e.kind in _NAMES_CHECK]
        return str(checks[-1].detail["check"]).partition(".")[0] if checks else _UNKNOWN


_NAMES_CHECK = frozenset({EventKind.FAULT_OCCURRED, EventKind.INCIDENT_OPENED, EventKind.INCIDENT_STATE})


@dataclass
class Totals:
    """Counts events in the order of the store's numbers."""

    provider: str = ""
    """The site's, for actions at machines."""
    tally: Tally = field(default_factory=Tally)
    cursor: int = 0
    """Number of the last event that was counted."""
    _incidents: dict[str, _Followed] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Count one event; one that was counted already is nothing."""
        if event.id <= self.cursor:
            return
        self.cursor = event.id
        self._count(event)
        incident = self._of(event)
        if incident is not None:
            incident.events.append(event)
            self._follow(str(event.incident_id), incident, event)
        if event.id % _FORGET_EVERY == 0:
            self._forget(event.at)

    def _of(self, event: Event) -> _Followed | None:
        """The incident that it is about, where more is to be counted of that; steps that end after it are not."""
        number = event.incident_id
        if number is None or number == UPKEEP or event.kind not in _KEPT:
            return None
        if number not in self._incidents and _begins(event):
            self._incidents[number] = _Followed()
        return self._incidents.get(number)

    # What one event says

    def _count(self, event: Event) -> None:
        detail, node = event.detail, event.node or ""
        if event.kind in _ENDED:
            kind = str(detail.get("kind", _UNKNOWN))
            provider = self.provider if kind in _AT_MACHINES else ""
            outcome = event.kind.value.removeprefix("action.")
            self.tally.add(ACTIONS, (action_name(kind, detail.get("verb")), provider, outcome))
        elif event.kind is EventKind.FAULT_OCCURRED:
            self.tally.add(FAULTS, (node, str(detail.get("check", _UNKNOWN))))
        xid = _xid(event)
        if xid:
            self.tally.add(XIDS, (node, xid))

    # What an incident's events say together

    def _follow(self, number: str, incident: _Followed, event: Event) -> None:
        if event.kind is EventKind.INCIDENT_CLOSED:
            incident.closed_at = event.at
            self._held(incident, event.at)
        elif event.kind is EventKind.JOB_STOPPED:
            self.tally.add(REQUEUED, (_kind(incident) or _UNKNOWN,))
        if event.kind in (EventKind.JOB_RUNNING, EventKind.JOB_RESUMED) or incident.closed_at is not None:
            (timings,) = measure(incident.events) or (None,)
            if timings is not None:
                self._losses(incident, timings)
                self._durations(number, incident, timings)

    def _held(self, incident: _Followed, at: datetime) -> None:
        """A job was held from the opening of its incident to its end."""
        opened = next((e.at for e in incident.events if e.kind is EventKind.INCIDENT_OPENED), None)
        if opened is not None and _kind(incident) == IncidentKind.HELD_JOB.value:
            self.tally.add(DOWNTIME, ("manual",), (at - opened).total_seconds())

    def _losses(self, incident: _Followed, timings: IncidentTimings) -> None:
        for job in timings.jobs:
            if job.running_at is not None and f"down {job.job}" not in incident.counted:
                incident.counted.add(f"down {job.job}")
                self.tally.add(DOWNTIME, ("automatic",), (job.running_at - job.stopped_at).total_seconds())
            lost_s = (job.lost_gpu_hours or 0.0) * 3600
            more_s = lost_s - incident.lost.get(job.job, 0.0)
            if more_s > 0:
                incident.lost[job.job] = lost_s
                self.tally.add(GPU_SECONDS, (incident.group,), more_s)

    def _durations(self, number: str, incident: _Followed, timings: IncidentTimings) -> None:
        if incident.closed_at is None:
            return
        group, remedy = incident.group, incident.newest("remedy") or _UNKNOWN
        for phase, duration_s in timings.phases.items():
            self._once(incident, phase.value, PHASES, (phase.value, group, remedy), duration_s)
        self._once(incident, "time to detect", DETECT, (), timings.phases.get(Phase.DETECT))
        self._once(incident, "time to recovery", RECOVERY, (), timings.time_to_running_s)
        out_at, back_at = out_of_service_at(incident.events), _returned_at(incident.events)
        out_s = (back_at - out_at).total_seconds() if out_at is not None and back_at is not None else None
        self._once(incident, "out of service", OUT, (_taken_out_by(incident.events),), out_s)
        if all(j.resumed_at is not None for j in timings.jobs) and (out_at is None or back_at is not None):
            del self._incidents[number]

    def _once(
        self, incident: _Followed, what: str, family: Family, labels: tuple[str, ...], duration_s: float | None
    ) -> None:
        if duration_s is not None and what not in incident.counted:
            incident.counted.add(what)
            self.tally.observe(family, labels, max(duration_s, 0.0))

    def _forget(self, now: datetime) -> None:
        late = [n for n, i in self._incidents.items() if i.closed_at is not None and now - i.closed_at > _LATEST]
        for number in late:
            del self._incidents[number]

    # To be kept in the store

    def dump(self) -> dict[str, Any]:
        """As JSON's own types: the totals, and of each incident that is followed what was counted of it."""
        followed = {
            number: {"counted": sorted(i.counted), "lost": i.lost} for number, i in sorted(self._incidents.items())
        }
        return {"version": _VERSION, "cursor": self.cursor, "tally": self.tally.dump(), "followed": followed}

    @classmethod
    def read(cls, document: Mapping[str, Any], provider: str = "") -> Totals:
        """What :meth:`dump` wrote; the events of :attr:`followed` are to be handed in again (:meth:`remind`).

        Raises ValueError, KeyError, TypeError or AttributeError for anything else."""
        if document["version"] != _VERSION:
            raise ValueError(f"written by another release (version {document['version']})")
        followed = {
            str(number): _Followed(counted=set(given["counted"]), lost=dict(given["lost"]))
            for number, given in document["followed"].items()
        }
        return cls(provider, Tally.read(document["tally"]), int(document["cursor"]), followed)

    @property
    def followed(self) -> tuple[str, ...]:
        """Incidents of which more is to be counted."""
        return tuple(self._incidents)

    def remind(self, number: str, events: Iterable[Event]) -> None:
        """Events of a followed incident up to the cursor, which were counted before the restart."""
        incident = self._incidents[number]
        incident.events = [e for e in events if e.id <= self.cursor and e.kind in _KEPT]
        closed = (e.at for e in incident.events if e.kind is EventKind.INCIDENT_CLOSED)
        incident.closed_at = next(closed, None)


def action_name(kind: str, verb: object = None) -> str:
    """``stop_start`` of the action ``StopStart``; of an order its verb, too: ``send_order_probe``."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower()
    return f"{name}_{verb}" if verb else name


_JOINED = frozenset({EventKind.INCIDENT_OPENED, EventKind.FINDING_JOINED})


def _xid(event: Event) -> str:
    """Number of the Xid of a finding that was placed; empty: the event is about none."""
    code = str(event.detail.get("code") or "")
    return code if event.kind in _JOINED and event.detail.get("check") == "gpu.xid" and code.isdecimal() else ""


def _begins(event: Event) -> bool:
    """The first event of an incident: a fault, its detection, or a suspicion."""
    suspicion = event.kind is EventKind.INCIDENT_STATE and "to" in event.detail and "from" not in event.detail
    return suspicion or event.kind in (EventKind.FAULT_OCCURRED, EventKind.INCIDENT_OPENED)


def _kind(incident: _Followed) -> str:
    """Kind of the incident; events of before 0.1.0a3 have none."""
    named = (e for e in incident.events if e.kind in _NAMES_CHECK and e.detail.get("kind"))
    return next((str(e.detail["kind"]) for e in named), "")


def _returned_at(events: Iterable[Event]) -> datetime | None:
    return next((e.at for e in events if e.kind is EventKind.NODE_RETURNED), None)


def _taken_out_by(events: Iterable[Event]) -> str:
    """Of the event by which the node was out of service first."""
    out = [
        e
        for e in events
        if e.kind is EventKind.NODE_OUT or (e.kind is EventKind.ACTION_DONE and e.detail.get("kind") in CONTAIN)
    ]
    first = min(out, key=lambda e: e.at, default=None)
    if first is None:
        return _UNKNOWN
    if first.kind is EventKind.ACTION_DONE:
        return "holdfast"
    return _BY.get(str(first.detail.get("by", "")), _UNKNOWN)
