"""Transitions of an incident: open, raise, move and close; the only code that sets an incident's state or kind. Pure.

Each function checks the step against the table (:data:`holdfast.model.incidents.incident.TRANSITIONS`), sets the times that belong to the
state and returns the incident with the events of the step. The events that have ``to`` in their ``detail`` are the complete path of an
incident: the first has no ``from``, each later one starts where the last one ended. A suspicion that is raised is opened by an event
without either: the step is that of ``incident.state`` next to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from holdfast.model.event import BY_OTHERS, Event, EventKind
from holdfast.model.incidents.incident import Fault, Incident, IncidentKind, IncidentState, MovedBy, legal
from holdfast.model.operators.node_orders import MachineOrder
from holdfast_checks.result import Remedy, Severity

Moved = tuple[Incident, list[Event]]
"""The incident after a transition, and its events in the order in which they are recorded."""


class IllegalTransition(Exception):
    """A step that the table does not have. From a decision it is a bug; from an operator the store refuses it."""

    def __init__(self, incident_id: str, before: IncidentState | None, after: IncidentState) -> None:
        self.before, self.after = before, after
        came_from = before.value if before is not None else "nothing"
        super().__init__(f"incident {incident_id}: {came_from} → {after.value} is not in the table")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewIncident:
    """Data of an incident when it is opened; the fields are those of :class:`Incident`."""

    id: str
    kind: IncidentKind
    node: str
    severity: Severity
    remedy: Remedy
    check: str
    headline: str
    fault_at: datetime
    instance_id: str = ""
    boot_id: str = ""
    gpu_minors: frozenset[int] | None = None
    goes_at: datetime | None = None
    notice: str = ""
    job: str = ""
    job_uid: int | None = None
    suspects: tuple[str, ...] = ()
    pair_probed: bool = False
    stalled: tuple[str, ...] = ()
    by_job: bool = False
    by_program: bool = False
    code: str = ""
    note: str = ""
    order: MachineOrder | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """Data in the events of an opened or raised incident, in addition to the incident's own fields."""

    at: datetime | None = None
    """When the evidence was durable; None: now."""
    fault_at: datetime | None = None
    """When the fault that calls for action occurred; None: the incident's own time."""
    text: str = ""
    """One line; empty: the headline."""
    fault_text: str = ""
    """One line about the fault itself; empty: as ``text``."""
    job: str | None = None
    """``JobKey.text`` of the job that it is about."""
    detail: Mapping[str, object] = field(default_factory=dict)
    """Added to check, kind, severity, remedy and the states; the same key replaces."""


_PLAIN = Detection()


def open_incident(new: NewIncident, state: IncidentState, at: datetime, detection: Detection = _PLAIN) -> Moved:
    """Open an incident in this state. A suspicion is no fault and no detection yet; an adopted drain does not show a fault's
    time, and an order is no fault.

    Raises IllegalTransition for a state that no incident is opened in."""
    if not legal(None, state):
        raise IllegalTransition(new.id, None, state)
    incident = Incident(
        id=new.id,
        kind=new.kind,
        node=new.node,
        instance_id=new.instance_id,
        boot_id=new.boot_id,
        state=state,
        severity=new.severity,
        remedy=new.remedy,
        check=new.check,
        headline=new.headline,
        fault_at=new.fault_at,
        opened_at=at,
        gpu_minors=new.gpu_minors,
        state_since=at,
        goes_at=new.goes_at,
        notice=new.notice,
        job=new.job,
        job_uid=new.job_uid,
        suspects=new.suspects,
        pair_probed=new.pair_probed,
        stalled=new.stalled,
        by_job=new.by_job,
        by_program=new.by_program,
        code=new.code,
        note=new.note,
        by_order=new.kind is IncidentKind.ORDERED,
        order=new.order,
    )
    detail = _detail(incident, detection, to=state.value)
    if state is IncidentState.SUSPECTED:
        return incident, [_event(incident, EventKind.INCIDENT_STATE, at, f"→ {state.value} ({new.headline})", detail)]
    opened = _detected(incident, EventKind.INCIDENT_OPENED, at, detection, detail)
    if new.kind in (IncidentKind.ADOPTED, IncidentKind.ORDERED):
        return incident, [opened]
    return incident, [_occurred(incident, detection, detail), opened]


def raise_to(incident: Incident, state: IncidentState, at: datetime, detection: Detection = _PLAIN) -> Moved:
    """Raise an incident that has become graver to the state that this calls for; in the same state there is nothing to record.

    ``incident`` has the new severity, remedy, check and headline already. Times of the fault count from here on, so its ``fault_at``
    becomes the detection's.
    Raises IllegalTransition."""
    if state is incident.state:
        return incident, []
    raised = replace(incident, fault_at=detection.fault_at or incident.fault_at)
    after = _in_state(raised, state, at, MovedBy.HOLDFAST)
    detail = _detail(after, detection, **_step(incident, after))
    text = f"{incident.state.value} → {state.value} ({detection.text or incident.headline})"
    events = [
        _occurred(after, detection, detail),
        _detected(after, EventKind.INCIDENT_STATE, at, replace(detection, text=text), detail),
    ]
    if incident.state is IncidentState.SUSPECTED:  # only now there is a fault
        events.append(_detected(after, EventKind.INCIDENT_OPENED, at, detection, _detail(after, detection)))
    return after, events


def move(
    incident: Incident,
    state: IncidentState,
    at: datetime,
    note: str,
    *,
    text: str = "",
    detail: Mapping[str, object] | None = None,
    by: MovedBy = MovedBy.HOLDFAST,
) -> Moved:
    """Move an incident to another state, or start the same one again. Raises IllegalTransition.

    ``text``: of the event; empty: both states and the note. ``detail``: of the event, in addition to both states."""
    after = replace(_in_state(incident, state, at, by), note=note)
    kind = EventKind.INCIDENT_STATE if after.open else EventKind.INCIDENT_CLOSED
    text = text or f"{incident.state.value} → {state.value}" + (f" ({note})" if note else "")
    return after, [_event(after, kind, at, text, {**(detail or {}), **_step(incident, after)})]


def not_dead(incident: Incident, fault: Fault) -> Incident:
    """The incident of a node that was thought dead and reports again, with the fault that is left. One that its silence had opened is about
    that fault from then on: the only change of an incident's kind."""
    return replace(
        incident,
        kind=IncidentKind.FAULT if incident.kind is IncidentKind.SILENCE else incident.kind,
        severity=fault.severity,
        remedy=fault.remedy,
        check=fault.check,
        headline=fault.headline,
        gpu_minors=fault.gpu_minors,
        fault_at=fault.fault_at,
        dead=False,
        before_death=None,
    )


def close(incident: Incident, at: datetime, note: str) -> Moved:
    """Close an incident; ``note``: how it ended. Raises IllegalTransition for one that is closed already."""
    return move(incident, IncidentState.CLOSED, at, note)


def remark(incident: Incident, at: datetime, text: str, detail: Mapping[str, object] | None = None) -> Event:
    """Event about an incident that remains in its state."""
    return _event(incident, EventKind.INCIDENT_STATE, at, text, dict(detail or {}))


def returned(node: str, incident_id: str, at: datetime, *, by_others: bool) -> Event:
    """Event that the node serves again after this incident. ``by_others``: an operator or another tool put it back."""
    text = "back in service, put there by an operator or another tool" if by_others else "back in service"
    return Event(at, EventKind.NODE_RETURNED, incident_id, node, text=text, detail={BY_OTHERS: by_others})


def _in_state(incident: Incident, state: IncidentState, at: datetime, by: MovedBy) -> Incident:
    if not legal(incident.state, state, by):
        raise IllegalTransition(incident.id, incident.state, state)
    return replace(incident, state=state, state_since=at, closed_at=at if state is IncidentState.CLOSED else None)


def _step(before: Incident, after: Incident) -> dict[str, str]:
    return {"from": before.state.value, "to": after.state.value}


def _detail(incident: Incident, detection: Detection, **step: str) -> dict[str, object]:
    facts = {
        "check": incident.check,
        "kind": incident.kind.value,
        "severity": incident.severity.value,
        "remedy": incident.remedy.value,
    }
    return {**facts, **detection.detail, **step}


def _occurred(incident: Incident, detection: Detection, detail: Mapping[str, object]) -> Event:
    at = detection.fault_at or incident.fault_at
    text = detection.fault_text or detection.text or incident.headline
    return _event(incident, EventKind.FAULT_OCCURRED, at, text, detail, detection.job)


def _detected(
    incident: Incident, kind: EventKind, at: datetime, detection: Detection, detail: Mapping[str, object]
) -> Event:
    return _event(incident, kind, detection.at or at, detection.text or incident.headline, detail, detection.job)


def _event(
    incident: Incident,
    kind: EventKind,
    at: datetime,
    text: str,
    detail: Mapping[str, object],
    job: str | None = None,
) -> Event:
    return Event(at, kind, incident.id, incident.node, job, text, detail)
