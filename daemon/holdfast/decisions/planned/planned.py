"""Incidents from the provider's announcements: watched until their time comes, then a planned stop. Pure.

An interruption is acted upon at once, maintenance ``planned.act_before_s`` before it, a failing status check after ``planned.impaired_s``.
A notice passed on by an agent has its incident already (:mod:`correlate`); here it gets its time, and is raised when that comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.decisions.common import node_agents, node_drains, slurm_view
from holdfast.decisions.planned import notices
from holdfast.model.book import Change, World
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState
from holdfast.model.incidents.transitions import Detection, Moved, NewIncident, close, move, open_incident, raise_to
from holdfast.model.machine import Notice, NoticeKind
from holdfast.model.slurm.cluster import ClusterView
from holdfast_checks.result import Remedy, Severity

_S = IncidentState
_BEFORE_REPAIR = frozenset({_S.WATCHING, _S.OPEN, _S.CONTAINED, _S.AWAITING_HUMAN})
_IN_PLAY = frozenset({_S.OPEN, _S.CONTAINED, _S.REPAIRING, _S.VALIDATING, _S.AWAITING_HUMAN, _S.SUSPECTED})


def plan_stops(world: World, new_id: Callable[[datetime], str]) -> Change:
    """Follow every notice that stands, and open incidents for new ones."""
    told = notices.from_provider(world)
    passed_on = {f.incident_id for f in world.book.findings.values() if notices.passes_on(f)}
    nodes = {n.node for n in told}
    at_work = {i.node for i in world.book.open_incidents() if i.state in _IN_PLAY}
    view = slurm_view.fresh_view(world)
    followed: dict[str, Moved] = {}
    by_node: dict[str, list[Incident]] = {}
    for incident in world.book.open_incidents():
        after: Incident = incident
        concerned = incident.notice or incident.goes_at or incident.id in passed_on or incident.node in nodes
        if concerned and not incident.acknowledged and incident.state in _BEFORE_REPAIR:
            followed[incident.id] = _follow(world, view, incident, at_work)
            after = followed[incident.id][0]
            if after.state in _IN_PLAY:
                at_work.add(after.node)  # of two that report the same event one is raised
        if incident.node in nodes and after.open:
            by_node.setdefault(incident.node, []).append(after)
    for notice in told:
        here = by_node.setdefault(notice.node, [])
        if view is None or notice.node not in view.nodes or any(_stands_for(world, i, notice) for i in here):
            continue
        step = _open(world, notice, new_id(world.now))
        followed[step[0].id] = step
        here.append(step[0])
    changed = [step for number, step in followed.items() if step[0] != world.book.incidents.get(number)]
    return Change(incidents=tuple(i for i, _ in changed), events=tuple(e for _, seen in changed for e in seen))


def _stands_for(world: World, incident: Incident, notice: Notice) -> bool:
    """Whether no other incident is needed: this one is for the same notice, or at work on the node."""
    if incident.notice == notices.key_of(notice) or incident.state in _IN_PLAY:
        return True
    passed_on = (notices.of_finding(world, f) for f in notices.evidence(world, incident))
    return any(n is not None and n.kind is notice.kind for n in passed_on)


def _open(world: World, notice: Notice, number: str) -> Moved:
    """Watched first; one that is due is open at once."""
    agent = node_agents.agent_of(world, notice.node, notice.instance_id)
    record = world.book.nodes.get(notice.node)
    due = _due(world, notice, world.now)
    new = NewIncident(
        id=number,
        kind=IncidentKind.NOTICE,
        node=notice.node,
        instance_id=notice.instance_id,
        boot_id=agent.boot_id if agent is not None else record.boot_id if record is not None else "",
        severity=_severity(notice) if due else Severity.WARNING,
        remedy=_remedy(notice) if due else Remedy.NONE,
        check=_check(notice),
        headline=_headline(notice),
        fault_at=world.now,
        goes_at=_goes_at(notice),
        notice=notices.key_of(notice),
    )
    return open_incident(new, _S.OPEN if due else _S.WATCHING, world.now, _detection(notice))


def _check(notice: Notice) -> str:
    return f"cloud.{notice.kind.value}"


def _headline(notice: Notice) -> str:
    at = f" at {notice.at:%Y-%m-%d %H:%M:%S} UTC" if _goes_at(notice) is not None and notice.at else ""
    return f"cloud.{notice.kind.value} {notice.code}{at}: {notice.text}"


def _goes_at(notice: Notice) -> datetime | None:
    return notice.at if notice.kind in notices.TAKES_AWAY or notice.kind is NoticeKind.CAPACITY_END else None


def _detection(notice: Notice) -> Detection:
    return Detection(detail={"code": notice.code})


def _due(world: World, notice: Notice, opened_at: datetime) -> bool:
    if notice.at_most is Severity.WARNING or notices.dealt_with(world, notice):
        return False
    match notice.kind:
        case NoticeKind.INTERRUPTION:
            return True
        case NoticeKind.REBOOT | NoticeKind.STOP:
            soon = timedelta(seconds=world.policy.planned.act_before_s)
            return notice.at is not None and notice.at - world.now <= soon
        case NoticeKind.IMPAIRED:
            since = opened_at if notice.at is None else notice.at
            return world.now - since >= timedelta(seconds=world.policy.planned.impaired_s) and not _fresh(world, notice)
        case _:
            return False


def _fresh(world: World, notice: Notice) -> bool:
    """The node was repaired a short while ago: status checks lag behind a reboot or a launch."""
    since = world.now - timedelta(seconds=world.policy.repair.fresh_s)
    return any(
        i.node == notice.node and i.rung and i.closed_at is not None and i.closed_at > since
        for i in world.book.incidents.values()
    )


def _raised(world: World, incident: Incident, notice: Notice) -> Moved:
    """It calls for action from now on."""
    due = replace(
        incident,
        fault_at=world.now,
        severity=_severity(notice),
        remedy=_remedy(notice),
        check=_check(notice),
        headline=_headline(notice),
        goes_at=_goes_at(notice),
    )
    return raise_to(due, _S.OPEN, world.now, _detection(notice))


def _severity(notice: Notice) -> Severity:
    """Severity of a notice that is due: jobs on an impaired machine continue; a notice that takes it away ends them."""
    return Severity.DEGRADED if notice.kind is NoticeKind.IMPAIRED else notice.at_most


def _remedy(notice: Notice) -> Remedy:
    """Remedy for the notice. AWS accepts a reboot by the customer in place of an announced instance-reboot; a system-reboot and a failing
    system status belong to the host, which a stop and start leaves."""
    match notice.kind:
        case NoticeKind.REBOOT:
            return Remedy.STOP_START if notice.of_the_host else Remedy.REBOOT
        case NoticeKind.IMPAIRED if notice.of_the_host:
            return Remedy.STOP_START
        case NoticeKind.IMPAIRED if notice.of_the_instance:
            return Remedy.REBOOT
        case _:
            return Remedy.REPLACE


def _follow(world: World, view: ClusterView | None, incident: Incident, at_work: set[str]) -> Moved:
    said = notices.of_incident(world, incident)
    if incident.state is _S.WATCHING:
        return _watched(world, incident, said, at_work)
    if notices.withdrawn(world, incident) and incident.ordered is None:
        return _taken_back(world, view, incident)
    times = [n.at for n in said if n.kind in notices.TAKES_AWAY and n.at is not None]
    return _confirmed(world, replace(incident, goes_at=min(times)) if times else incident), []


def _confirmed(world: World, incident: Incident) -> Incident:
    """The incident with the provider's notice, once its API reports what only an agent reported before."""
    if not notices.by_agent_alone(world, incident):
        return incident
    said = (n for n in notices.from_provider(world) if n.instance_id == incident.instance_id)
    same = next((n for n in said if n.kind in notices.TAKES_AWAY), None)
    return replace(incident, notice=notices.key_of(same)) if same is not None else incident


def _watched(world: World, incident: Incident, said: list[Notice], at_work: set[str]) -> Moved:
    if incident.notice and not any(notices.key_of(n) == incident.notice for n in said):
        # A finding of an agent ends only when the agent clears it.
        over = notices.silent_about(world, incident) and not notices.evidence(world, incident)
        return close(_not_going(incident), world.now, "the provider says it no more") if over else (incident, [])
    for notice in said:
        if incident.node not in at_work and _due(world, notice, incident.opened_at):
            return _raised(world, incident, notice)
    times = [at for n in said if (at := _goes_at(n)) is not None]
    return (replace(incident, goes_at=min(times)) if times else incident), []


def _taken_back(world: World, view: ClusterView | None, incident: Incident) -> Moved:
    """End an incident with nothing wrong any more. A node that was drained meanwhile is validated and released once it is free."""
    untouched = not any(i.is_attempt for i in world.book.intents_of(incident.id))
    if incident.state is _S.OPEN and untouched:
        return close(_not_going(incident), world.now, "the provider took it back before anything was done")
    if incident.state is not _S.CONTAINED or view is None or incident.node not in view.nodes:
        return incident, []
    if node_drains.drained_by_us(world, view.nodes[incident.node]) and slurm_view.free_of_jobs(view, incident.node):
        return move(_not_going(incident), _S.VALIDATING, world.now, "the provider took it back")
    return incident, []


def _not_going(incident: Incident) -> Incident:
    return replace(incident, goes_at=None)
