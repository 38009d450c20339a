"""Correlation of findings into incidents. Pure: a world in, a change out.

Related findings of one node are one fault: a PCIe error, Xid 79 and a lost GPU join one incident. A fatal finding opens or raises an
incident in the same cycle in which it arrives; findings that join later never delay the first action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.decisions.common import check_policy, mounts, node_incidents
from holdfast.decisions.nodes.stays_down import is_about
from holdfast.model.agents.report import Finding
from holdfast.model.book import Change, World
from holdfast.model.event import Event, EventKind
from holdfast.model.ids import NewId
from holdfast.model.incidents.incident import ABOUT_JOBS, Fault, Incident, IncidentKind, IncidentState
from holdfast.model.incidents.transitions import Detection, Moved, NewIncident, not_dead, open_incident, raise_to
from holdfast.model.policies.lookback import OPENED_S, OUT_OF_MEMORY_S
from holdfast_checks.result import Remedy, Severity

NO_INCIDENT = "-"
"""Placement of a finding that calls for no incident (a consequence whose cause was never seen)."""

_SEVERITY_RANK = {Severity.WARNING: 0, Severity.DEGRADED: 1, Severity.FATAL: 2}
_REMEDY_RANK = {remedy: rank for rank, remedy in enumerate(Remedy)}

_STANDS_APART = ABOUT_JOBS | {IncidentKind.UNREADABLE, IncidentKind.DISPUTED}
"""Kinds that take in no evidence of their node."""
_STILL_ITS_FAULT = frozenset(
    {IncidentState.WATCHING, IncidentState.OPEN, IncidentState.CONTAINED, IncidentState.AWAITING_HUMAN}
)

_MOST_WATCHED = 8
"""Watched incidents of one node; whatever else it reports joins the newest of them."""
_MOST_AN_HOUR = 30
"""Incidents opened of one node; an agent that reports and clears again and again fills no store."""


def correlate(world: World, new_id: NewId) -> Change:
    """Place every finding that belongs to no incident yet."""
    opened: dict[str, Incident] = {}
    placed: dict[int, str] = {}
    events: list[Event] = []
    for finding in sorted(world.book.findings.values(), key=lambda f: f.id):
        if finding.incident_id is not None or _waits(world, finding):
            continue
        if _suppressed(world, finding):
            if not finding.sticky:
                placed[finding.id] = NO_INCIDENT  # an event of that time; a state counts once the suppression is over
            continue
        home = _home(world, opened, finding)
        if home is not None:
            opened[home.id], raised = _join(home, finding, world)
            events += [_joined_event(finding, home.id), *raised]
        elif finding.consequence:
            if world.now - finding.received_at <= timedelta(seconds=world.policy.join_window_s):
                continue  # its cause may still arrive
            placed[finding.id] = NO_INCIDENT
            continue
        elif _too_many(world, opened, finding.node):
            if not acts(finding.severity, finding.remedy):
                placed[finding.id] = NO_INCIDENT  # one that calls for action waits for its turn
            continue
        else:
            home, seen = _open(finding, world, new_id)
            opened[home.id] = home
            events += seen
        placed[finding.id] = home.id
    return Change(incidents=tuple(opened.values()), placed=placed, events=tuple(events))


def _waits(world: World, finding: Finding) -> bool:
    """Whether it is not known yet if it counts against its node: its check may only observe there, or a shared file system may be the
    cause, which is reported as one event (``file_systems.py``) and counted once its node is the only one."""
    if not acts(finding.severity, finding.remedy):
        return False
    return check_policy.undecided(world, finding) or mounts.waits(world, finding)


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
    watched: list[Incident] = []
    for incident in sorted(candidates.values(), key=lambda i: (i.state is IncidentState.WATCHING, i.id)):
        if incident.state is IncidentState.SUSPECTED or incident.kind in _STANDS_APART or is_about(incident):
            continue  # a silent node, or a job that failed on it, is no fault of the node; evidence of one is separate
        if incident.acknowledged and _SEVERITY_RANK[finding.severity] > _SEVERITY_RANK[incident.severity]:
            continue  # an operator took over something milder: this is news
        acting = incident.state is not IncidentState.WATCHING
        near = abs(finding.fault_at - incident.fault_at) <= window
        same_gpu = incident.gpu_minors is not None and finding.gpu_minor in incident.gpu_minors
        if acting or near or same_gpu:
            return incident
        watched.append(incident)
    return watched[-1] if len(watched) >= _MOST_WATCHED else None


def _too_many(world: World, opened: Mapping[str, Incident], node: str) -> bool:
    """Whether this node's reports have opened too many incidents within the hour to open another one now."""
    since = world.now - timedelta(seconds=OPENED_S)
    mine = {i.id for i in world.book.incidents.values() if i.node == node and i.opened_at > since}
    return len(mine | {i.id for i in opened.values() if i.node == node}) >= _MOST_AN_HOUR


def acts(severity: Severity, remedy: Remedy) -> bool:
    """Whether a fault of this kind takes a node out of service. A warning, or a fault that only the job must survive, does not."""
    return severity is not Severity.WARNING and remedy not in (Remedy.NONE, Remedy.RESTART_JOB)


def _open(finding: Finding, world: World, new_id: NewId) -> Moved:
    new = NewIncident(
        id=new_id(world.now),
        kind=IncidentKind.FAULT,
        node=finding.node,
        instance_id=finding.instance_id,
        boot_id=finding.boot_id,
        severity=finding.severity,
        remedy=finding.remedy,
        check=finding.check,
        headline=finding.headline,
        fault_at=finding.fault_at,
        gpu_minors=_minors(finding),
        by_job=_by_job(finding, world),
        by_program=_by_job(finding, world),
        code=finding.code,
    )
    state = IncidentState.OPEN if acts(finding.severity, finding.remedy) else IncidentState.WATCHING
    return open_incident(new, state, world.now, _detection(finding))


_ANY: frozenset[str] = frozenset()
_USED_UP_BY_JOBS: Mapping[str, frozenset[str]] = {
    "host.disk": frozenset({"full", "filling"}),
    "host.mounts": frozenset({"not_writable", "covered", "hang"}),
    "host.credential": _ANY,
    "host.dstate": _ANY,
    "host.fds": _ANY,
    "host.pids": _ANY,
    "host.zombies": _ANY,
}
"""Codes, by check, of resources that a user's jobs can exhaust, or of leftovers, on as many nodes as they run on; for a shared file system,
on all nodes. A file system that went read-only is not included: a disk error causes that, or someone else on many nodes alike. munged
accepts connections of any user, and a file server is as slow as its users make it."""
_SERVICES = frozenset({"host.slurmd", "host.munge", "host.services"})
"""Services that the kernel may kill if a user's job uses up all memory of a node."""

RAISED_BY_PROGRAMS = frozenset({"8", "11", "13", "25", "31", "32", "43", "45", "68", "69", "109", "137"})
"""Xids that an error of a program raises too: those for which NVIDIA's catalogue says to restart the application or to look at another
Xid, and 109, a context switch that took too long, which long kernels cause as well."""


def _by_job(finding: Finding, world: World) -> bool:
    """Whether a user's job can have caused it, on as many nodes as it runs on."""
    return _used_up(finding) or _may_be_a_users_mount(finding) or _ended_for_memory(finding, world)


def _may_be_a_users_mount(finding: Finding) -> bool:
    """It cannot be used, and neither the site nor a manifest named it: the automounter mounts from any server that a user names. An older
    agent does not say who named it."""
    mount = finding.check == "host.mounts"  # rule kind-not-check: a finding has no kind
    return mount and finding.code == "error" and finding.evidence.get("named") is not True


def _ended_for_memory(finding: Finding, world: World) -> bool:
    if finding.check not in _SERVICES:  # rule kind-not-check: a finding has no kind
        return False
    near = timedelta(seconds=OUT_OF_MEMORY_S)
    return any(
        each.node == finding.node and abs(finding.fault_at - each.fault_at) <= near
        for each in world.book.findings.values()
        if each.check == "kernel.oom"  # rule kind-not-check: a finding has no kind
    )


def _used_up(finding: Finding) -> bool:
    xid = finding.check == "gpu.xid"  # rule kind-not-check: a finding has no kind
    codes = _USED_UP_BY_JOBS.get(finding.check)
    used_up = codes is not None and (codes is _ANY or finding.code in codes)
    return used_up or (xid and finding.code in RAISED_BY_PROGRAMS)


def _still_by_job(incident: Incident, finding: Finding, world: World) -> bool:
    """Whether the incident may still be a job's doing. A watched incident does not show the cause: a user's job can raise warnings of other
    kinds first."""
    if not acts(incident.severity, incident.remedy) and acts(finding.severity, finding.remedy):
        return _by_job(finding, world)
    return incident.by_job and not _says_more(incident, finding, world)


def _says_more(incident: Incident, finding: Finding, world: World) -> bool:
    """Whether a finding speaks against the node although the incident so far may be a job's doing. A reset that the driver requests after
    an error raised by a program is the same fault reported again."""
    if _by_job(finding, world) or not acts(finding.severity, finding.remedy):
        return False
    xid = finding.check == "gpu.xid"  # rule kind-not-check: a finding has no kind
    read = finding.check == "gpu.recovery_action"  # rule kind-not-check: a finding has no kind
    order = read or (xid and finding.code == _RECOVERY_ACTION)
    same = incident.gpu_minors is not None and finding.gpu_minor in incident.gpu_minors
    near = abs(finding.fault_at - incident.fault_at) <= timedelta(seconds=world.policy.join_window_s)
    return not (order and same and near and finding.remedy is Remedy.RESET_GPU)


_RECOVERY_ACTION = "154"
"""Xid of the driver's order to recover a GPU."""


def _minors(finding: Finding) -> frozenset[int] | None:
    """The GPU at fault, or None for the node as a whole (also for a GPU that cannot be placed)."""
    return frozenset({finding.gpu_minor}) if finding.gpu_minor is not None else None


def _join(incident: Incident, finding: Finding, world: World) -> Moved:
    """The incident with this finding in it."""
    if not _changes(incident, finding):
        return incident, []
    risen = _risen(incident, finding, world)
    calls = risen.state is IncidentState.WATCHING and acts(risen.severity, risen.remedy) and not risen.acknowledged
    return raise_to(risen, IncidentState.OPEN if calls else risen.state, world.now, _detection(finding))


def _changes(incident: Incident, finding: Finding) -> bool:
    """Whether the finding changes the incident. Evidence of another machine (a replacement under test) does not, nor does any while the
    fault is being repaired."""
    if finding.consequence or (incident.instance_id and finding.instance_id not in ("", incident.instance_id)):
        return False
    return incident.state in _STILL_ITS_FAULT


def _risen(incident: Incident, finding: Finding, world: World) -> Incident:
    """The incident with the more severe of both in each respect."""
    first = incident.by_order and acts(finding.severity, finding.remedy)  # an order alone is no fault
    raises = first or _SEVERITY_RANK[finding.severity] > _SEVERITY_RANK[incident.severity]
    leads = raises or _leads_what_is_watched(incident, finding, world)
    return replace(
        incident,
        severity=finding.severity if raises else incident.severity,
        remedy=finding.remedy if first else max(incident.remedy, finding.remedy, key=_REMEDY_RANK.__getitem__),
        by_order=incident.by_order and not first,
        check=finding.check if leads else incident.check,
        code=finding.code if leads else incident.code,
        by_program=_by_job(finding, world) if leads else incident.by_program,
        headline=finding.headline if leads else incident.headline,
        by_job=_still_by_job(incident, finding, world),
        fault_at=_fault_at(incident, finding, world),
        gpu_minors=_widened(incident, finding, raises=raises),
    )


def _fault_at(incident: Incident, finding: Finding, world: World) -> datetime:
    """Time of the fault. A milder finding does not show when it occurred. A more severe one is a separate fault, unless both appear within
    the join window."""
    more = _SEVERITY_RANK[finding.severity] - _SEVERITY_RANK[incident.severity]
    if more < 0:
        return incident.fault_at
    if more > 0 and finding.fault_at - incident.fault_at > timedelta(seconds=world.policy.join_window_s):
        return finding.fault_at
    return min(incident.fault_at, finding.fault_at)


def _would(finding: Finding) -> int:
    """Severity rank that the finding would have if its check did not only observe."""
    return _SEVERITY_RANK[finding.would_severity or finding.severity]


def _leads_what_is_watched(incident: Incident, finding: Finding, world: World) -> bool:
    """Whether it would be worse than anything else in a watched incident: the headline should say so."""
    would = _would(finding)
    if incident.state is not IncidentState.WATCHING or would <= _SEVERITY_RANK[incident.severity]:
        return False  # the usual case, without reading the others
    mine = (f for f in world.book.findings.values() if f.incident_id == incident.id and not f.consequence)
    return all(would > _would(f) for f in mine)


def as_found(world: World, incident: Incident) -> Incident | None:
    """The incident of a node that reports again: as it was before the node was declared dead, with its agent's findings since. A silence
    with findings is a fault from then on.

    None: there was only silence."""
    mine = node_incidents.findings_of(world, incident)
    mine = [f for f in sorted(mine, key=lambda f: f.id) if f.instance_id in ("", incident.instance_id)]
    before = incident.before_death or _fault_of(incident, mine)
    if before is None:
        return None
    found = not_dead(incident, before)
    for finding in mine:
        if _changes(found, finding):
            found = _risen(found, finding, world)
    return found


def _fault_of(incident: Incident, findings: Sequence[Finding]) -> Fault | None:
    """Fault of an incident whose node was declared dead by an earlier release, or while it was only suspected: its first finding. If a
    probe or an ordered check had found the fault, it is no longer known, and an operator decides."""
    if findings:
        first = findings[0]
        return Fault(first.severity, first.remedy, first.check, first.headline, first.fault_at, _minors(first))
    if incident.kind is IncidentKind.SILENCE:
        return None
    return replace(incident.fault, severity=Severity.DEGRADED, remedy=Remedy.HUMAN)


def _widened(incident: Incident, finding: Finding, *, raises: bool) -> frozenset[int] | None:
    """GPUs at fault now. Only a finding at least as severe as the incident can add some."""
    if raises:
        return _minors(finding)
    if _SEVERITY_RANK[finding.severity] < _SEVERITY_RANK[incident.severity]:
        return incident.gpu_minors
    mine = _minors(finding)
    return None if incident.gpu_minors is None or mine is None else incident.gpu_minors | mine


def _detection(finding: Finding) -> Detection:
    """The fault, and its detection: from here on times count."""
    return Detection(
        at=finding.received_at,
        fault_at=finding.fault_at,
        text=finding.headline,
        detail={"check": finding.check, "component": finding.component, "code": finding.code},
    )


def _joined_event(finding: Finding, incident_id: str) -> Event:
    return Event(
        finding.received_at,
        EventKind.FINDING_JOINED,
        incident_id,
        finding.node,
        text=finding.headline,
        detail={"check": finding.check, "code": finding.code, "severity": finding.severity.value},
    )
