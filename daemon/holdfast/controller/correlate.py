"""Findings become incidents. Pure: a world in, a change out.

Related findings of one node are one fault: a PCIe error, Xid 79 and a lost GPU join one incident. A fatal finding opens or raises an
incident in the same cycle in which it arrives; findings that join later never delay the first action."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.model.book import Change, World
from holdfast.model.event import Event, EventKind
from holdfast.model.incident import Incident, IncidentState
from holdfast.model.report import Finding
from holdfast_checks.result import Remedy, Severity

NO_INCIDENT = "-"
"""Where a finding is placed that calls for no incident (a consequence whose cause was never seen)."""

_SEVERITY_RANK = {Severity.WARNING: 0, Severity.DEGRADED: 1, Severity.FATAL: 2}
_REMEDY_RANK = {remedy: rank for rank, remedy in enumerate(Remedy)}

_STILL_ITS_FAULT = frozenset(
    {IncidentState.WATCHING, IncidentState.OPEN, IncidentState.CONTAINED, IncidentState.AWAITING_HUMAN}
)

NewId = Callable[[datetime], str]


def correlate(world: World, new_id: NewId) -> Change:
    """Place every finding that belongs to no incident yet."""
    opened: dict[str, Incident] = {}
    placed: dict[int, str] = {}
    events: list[Event] = []
    for finding in sorted(world.book.findings.values(), key=lambda f: f.id):
        if finding.incident_id is not None:
            continue
        if _suppressed(world, finding):
            if not finding.sticky:
                placed[finding.id] = NO_INCIDENT  # an event of that time; a state counts once the suppression is over
            continue
        home = _home(world, opened, finding)
        if home is not None:
            joined = _join(home, finding, world)
            opened[home.id] = joined
            events.append(_joined_event(finding, home.id))
            if (home.state, joined.state) == (IncidentState.WATCHING, IncidentState.OPEN):
                events += _raised_events(joined, finding)
        elif finding.consequence:
            if world.now - finding.received_at <= timedelta(seconds=world.policy.join_window_s):
                continue  # its cause may still arrive
            placed[finding.id] = NO_INCIDENT
            continue
        else:
            home = _open(finding, world, new_id)
            opened[home.id] = home
            events += _opened_events(home, finding)
        placed[finding.id] = home.id
    return Change(incidents=tuple(opened.values()), placed=placed, events=tuple(events))


def _suppressed(world: World, finding: Finding) -> bool:
    return any(each.covers(finding, world.now) for each in world.book.suppressions.values())


def _home(world: World, opened: dict[str, Incident], finding: Finding) -> Incident | None:
    """The open incident of the node that this finding belongs to.

    One that calls for action takes in everything that happens on its node. A watched one takes in the same component, and whatever
    comes within the join window."""
    candidates = {i.id: i for i in world.book.open_on(finding.node)} | {
        i.id: i for i in opened.values() if i.node == finding.node
    }
    window = timedelta(seconds=world.policy.join_window_s)
    for incident in sorted(candidates.values(), key=lambda i: (i.state is IncidentState.WATCHING, i.id)):
        if incident.state is IncidentState.SUSPECTED or incident.suspects:
            continue  # a silent node, or a job that failed on it, is no fault of the node; evidence of one stands by itself
        if incident.acknowledged and _SEVERITY_RANK[finding.severity] > _SEVERITY_RANK[incident.severity]:
            continue  # an operator took over something milder: this is news
        acting = incident.state is not IncidentState.WATCHING
        near = abs(finding.fault_at - incident.fault_at) <= window
        same_gpu = incident.gpu_minors is not None and finding.gpu_minor in incident.gpu_minors
        if acting or near or same_gpu:
            return incident
    return None


def acts(severity: Severity, remedy: Remedy) -> bool:
    """Whether a fault of this kind takes a node out of service. A warning, or a fault that only the job must survive, does not."""
    return severity is not Severity.WARNING and remedy not in (Remedy.NONE, Remedy.RESTART_JOB)


def headline(finding: Finding) -> str:
    """``gpu.xid 79 GPU-…: fell off the bus``."""
    component = finding.component if finding.component not in ("node", finding.code) else ""
    summary = finding.summary.removeprefix(f"Xid {finding.code} ").removeprefix(f"{component}: ")
    return f"{' '.join(p for p in (finding.check, finding.code, component) if p)}: {summary}"


def _open(finding: Finding, world: World, new_id: NewId) -> Incident:
    state = IncidentState.OPEN if acts(finding.severity, finding.remedy) else IncidentState.WATCHING
    return Incident(
        id=new_id(world.now),
        node=finding.node,
        instance_id=finding.instance_id,
        boot_id=finding.boot_id,
        state=state,
        severity=finding.severity,
        remedy=finding.remedy,
        check=finding.check,
        headline=headline(finding),
        fault_at=finding.fault_at,
        opened_at=world.now,
        gpu_minors=_minors(finding),
        state_since=world.now,
    )


def _minors(finding: Finding) -> frozenset[int] | None:
    """The GPU at fault, or None for the node as a whole (also for a GPU that cannot be placed)."""
    return frozenset({finding.gpu_minor}) if finding.gpu_minor is not None else None


def _join(incident: Incident, finding: Finding, world: World) -> Incident:
    """The incident with this finding in it. Evidence of another machine (a replacement under test) changes nothing of it."""
    if finding.consequence or (incident.instance_id and finding.instance_id not in ("", incident.instance_id)):
        return incident
    if incident.state not in _STILL_ITS_FAULT:
        return incident  # the fault is being repaired: what else shows meanwhile is evidence
    raises = _SEVERITY_RANK[finding.severity] > _SEVERITY_RANK[incident.severity]
    leads = raises or _leads_what_is_watched(incident, finding, world)
    remedy = max(incident.remedy, finding.remedy, key=_REMEDY_RANK.__getitem__)
    severity = finding.severity if raises else incident.severity
    state, since = incident.state, incident.state_since
    if state is IncidentState.WATCHING and acts(severity, remedy) and not incident.acknowledged:
        state, since = IncidentState.OPEN, world.now
    return replace(
        incident,
        severity=severity,
        remedy=remedy,
        check=finding.check if leads else incident.check,
        headline=headline(finding) if leads else incident.headline,
        fault_at=min(incident.fault_at, finding.fault_at),
        gpu_minors=_widened(incident, finding, raises=raises),
        state=state,
        state_since=since,
    )


def _would(finding: Finding) -> int:
    """How serious it would be if its check did not only observe."""
    said = str(finding.evidence.get("would_severity", ""))
    return {s.value: rank for s, rank in _SEVERITY_RANK.items()}.get(said, _SEVERITY_RANK[finding.severity])


def _leads_what_is_watched(incident: Incident, finding: Finding, world: World) -> bool:
    """Whether it would be worse than anything else in a watched incident: the headline should say so."""
    would = _would(finding)
    if incident.state is not IncidentState.WATCHING or would <= _SEVERITY_RANK[incident.severity]:
        return False  # the usual case, without a look at the others
    mine = (f for f in world.book.findings.values() if f.incident_id == incident.id and not f.consequence)
    return all(would > _would(f) for f in mine)


def as_found(world: World, incident: Incident) -> Incident | None:
    """The incident as its own findings make it: of a node thought dead that is heard again. None: it has none, silence was all."""
    mine = [f for f in world.book.findings.values() if f.incident_id == incident.id and not f.consequence]
    mine = [f for f in sorted(mine, key=lambda f: f.id) if f.instance_id in ("", incident.instance_id)]
    if not mine:
        return None
    first = mine[0]
    found = replace(
        incident,
        severity=first.severity,
        remedy=first.remedy,
        check=first.check,
        headline=headline(first),
        gpu_minors=_minors(first),
        dead=False,
    )
    for finding in mine[1:]:
        found = _join(found, finding, world)
    return found


def _widened(incident: Incident, finding: Finding, *, raises: bool) -> frozenset[int] | None:
    """Which GPUs are at fault now. Only a finding at least as severe as the incident can widen it."""
    if raises:
        return _minors(finding)
    if _SEVERITY_RANK[finding.severity] < _SEVERITY_RANK[incident.severity]:
        return incident.gpu_minors
    mine = _minors(finding)
    return None if incident.gpu_minors is None or mine is None else incident.gpu_minors | mine


def _detail(incident: Incident, finding: Finding) -> dict[str, str]:
    return {
        "check": finding.check,
        "component": finding.component,
        "code": finding.code,
        "severity": incident.severity.value,
        "remedy": incident.remedy.value,
    }


def _raised_events(incident: Incident, finding: Finding) -> list[Event]:
    """The fault that calls for action, and its detection: from here on times count."""
    detail = {**_detail(incident, finding), "from": IncidentState.WATCHING.value, "to": IncidentState.OPEN.value}
    said = headline(finding)
    return [
        Event(finding.fault_at, EventKind.FAULT_OCCURRED, incident.id, incident.node, text=said, detail=detail),
        Event(
            finding.received_at,
            EventKind.INCIDENT_STATE,
            incident.id,
            incident.node,
            text=f"watching → open ({said})",
            detail=detail,
        ),
    ]


def _opened_events(incident: Incident, finding: Finding) -> list[Event]:
    detail = _detail(incident, finding)
    return [
        Event(
            finding.fault_at,
            EventKind.FAULT_OCCURRED,
            incident.id,
            incident.node,
            text=incident.headline,
            detail=detail,
        ),
        Event(
            finding.received_at,
            EventKind.INCIDENT_OPENED,
            incident.id,
            incident.node,
            text=incident.headline,
            detail=detail,
        ),
    ]


def _joined_event(finding: Finding, incident_id: str) -> Event:
    return Event(
        finding.received_at,
        EventKind.FINDING_JOINED,
        incident_id,
        finding.node,
        text=headline(finding),
        detail={"check": finding.check, "code": finding.code, "severity": finding.severity.value},
    )
