"""Silent nodes. Silence is *unknown*: neither healthy nor failed. Pure.

Opens a suspicion, gets the verdict from :mod:`holdfast.decisions.death`, and moves the incident by it. Slurm's own "not responding" is seen
from the head node like the silence itself, so it is no second witness. Many nodes silent at once make the controller, or one cause, the
suspect."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.decisions.common import node_agents, node_drains, node_incidents, slurm_view
from holdfast.decisions.common.once import once_per_world
from holdfast.decisions.death import agentless, domains, evidence, unreached
from holdfast.decisions.death.verdict import (
    DeathEvidence,
    DeathVerdict,
    LivingPeer,
    PowerOff,
    StepsAdvance,
    TcpAnswered,
    judge,
)
from holdfast.decisions.nodes import hands_off
from holdfast.decisions.silence import common_cause
from holdfast.model.actions.action import SendOrder
from holdfast.model.agents.report import AgentView
from holdfast.model.book import Change, World
from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState
from holdfast.model.incidents.transitions import Detection, Moved, NewIncident, close, open_incident, raise_to
from holdfast.model.slurm.cluster import ClusterView
from holdfast_checks.result import Remedy, Severity

_FAULTY = frozenset({IncidentState.OPEN, IncidentState.CONTAINED})
SILENT_CHECK = "node.silent"
DEAD_CHECK = "node.dead"
LONGEST_HEARTBEAT_S = 10.0
"""The longest interval that the controller sets. For an agent configured with a longer one, the head node asks the kernel instead."""
_UNHEARD_S = 30.0
"""A node that has never reported to this controller is silent after this, or after the time for the slowest agent that has reported."""


@once_per_world
def silent_nodes(world: World) -> tuple[str, ...]:
    """Nodes known to have had an agent, none of which has reported for long."""
    intervals = {a.heartbeat_interval_s for agents in world.agents.values() for a in agents}
    before = {
        interval_s: node_agents.silent_before(world, interval_s) for interval_s in intervals
    }  # few, for thousands of agents
    silent = [
        node
        for node, agents in world.agents.items()
        if agents and all(a.last_heard < before[a.heartbeat_interval_s] for a in agents)
    ]
    quiet = set(silent)
    silent += [n for n in world.head if n not in quiet and _slow_and_gone(world, n)]
    since, patience_s = world.listening_since, max([_UNHEARD_S, *(_patience_s(world, i) for i in intervals)])
    if since is not None and world.now - since > timedelta(seconds=patience_s):
        silent += _unheard(world)
    return tuple(sorted(silent))


def _patience_s(world: World, interval_s: float) -> float:
    return interval_s * world.policy.death.silent_after_heartbeats


def _unheard(world: World) -> list[str]:
    """Nodes known to have had an agent that has not reported to this controller."""
    return [n for n, r in world.book.nodes.items() if r.boot_id and not world.agents.get(n)]


def _slow(agents: Iterable[AgentView]) -> bool:
    """Whether its agent has a longer interval than the controller sets: other nodes are not judged by when it reports."""
    return all(a.heartbeat_interval_s > LONGEST_HEARTBEAT_S for a in agents)


def _slow_and_gone(world: World, node: str) -> bool:
    """Whether this is a node with a slow agent that the head node tried to reach because of another node, without success."""
    probe, agents = world.head[node], world.agents.get(node, ())
    if probe.answered or not agents or not _slow(agents):
        return False
    heard = max(a.last_heard for a in agents)
    return heard < probe.at and world.now - heard >= timedelta(seconds=LONGEST_HEARTBEAT_S)


def to_reach(world: World, silent: Iterable[str]) -> tuple[str, ...]:
    """Nodes that the head node tries to reach: silent ones; and those with a slow agent that neither reported nor answered since the newest
    silence started, so that a verdict need not wait for their next report."""
    quiet = set(silent)
    ends = [
        a.last_heard + timedelta(seconds=2 * a.heartbeat_interval_s) for n in quiet for a in world.agents.get(n, ())
    ]
    newest = max((at for at in ends if at <= world.now), default=None)
    late = (
        n
        for n, agents in world.agents.items()
        if newest is not None and n not in quiet and agents and _slow(agents) and _yet_to_report(world, n, newest)
    )
    return tuple(sorted({*quiet, *late}))


def freeze_reason(world: World, silent: Iterable[str] | None = None) -> str | None:
    """Reason why nothing may be concluded from silence now; None: conclusions are allowed. ``silent``: :func:`silent_nodes`, if known
    already."""
    if world.frozen is not None:
        return world.frozen
    unexplained = [n for n in (silent_nodes(world) if silent is None else silent) if not _explained(world, n)]
    if len(unexplained) <= 2:
        return None
    known = known_agents(world)
    if len(unexplained) > known * world.policy.death.silent_share_suspects_controller:
        return f"{len(unexplained)} of {known} agents are silent at once: the controller's own network is the suspect"
    return None


def frozen_since(world: World) -> datetime | None:
    """Time since which too many agents are silent at once for a verdict; None: they are not, or the controller has just started."""
    silent = silent_nodes(world)
    if world.frozen is not None or freeze_reason(world, silent) is None:
        return None
    times = sorted(_fell_silent(world, node) for node in silent if not _explained(world, node))
    return times[max(2, int(known_agents(world) * world.policy.death.silent_share_suspects_controller))]


def _fell_silent(world: World, node: str) -> datetime:
    beats = world.policy.death.silent_after_heartbeats
    since = (a.last_heard + timedelta(seconds=a.heartbeat_interval_s * beats) for a in world.agents.get(node, ()))
    return max(since, default=world.listening_since or world.now)


def known_agents(world: World) -> int:
    """Nodes of Slurm that have, or had, an agent."""
    names = slurm_view.with_agents(world)
    return len(names if world.view is None else names & world.view.nodes.keys())


def _explained(world: World, node: str) -> bool:
    """Whether the node's silence says nothing about the controller: it was declared dead, another user took it out of service, Slurm's
    power saving has it off, or Slurm no longer has it (decommissioned, or renamed)."""
    if world.view is not None and node not in world.view.nodes:
        return True
    shown = world.view.nodes.get(node) if world.view is not None else None
    dead = any(i.dead for i in world.book.open_on(node))
    return (
        dead
        or hands_off.explains_silence(world, node) is not None
        or (shown is not None and (shown.out_of_service or shown.asleep))
    )


def in_question(world: World, view: ClusterView, silent: Iterable[str]) -> tuple[Incident, ...]:
    """Incidents about whose node the witnesses are asked: suspicions, and faults of a node that fell silent with something left to
    lose on it. Not while its machine is being changed."""
    quiet = set(silent)
    return tuple(
        i
        for i in world.book.open_incidents()
        if i.node in view.nodes
        and hands_off.explains_silence(world, i.node) is None
        and (
            i.state is IncidentState.SUSPECTED
            or (
                i.node in quiet
                and i.state in _FAULTY
                and not i.dead
                and node_incidents.acting(i)
                and _ours_to_lose(world, view, i.node)
            )
        )
    )


def to_ask_about(world: World, view: ClusterView, silent: Iterable[str]) -> tuple[Incident, ...]:
    """Incidents about which witnesses are asked: those in question, and dead nodes whose machine was not touched yet."""
    quiet = set(silent)
    dead = (
        i
        for i in world.book.open_incidents()
        if i.dead and i.state in _FAULTY and i.node in quiet and i.node in view.nodes and node_incidents.acting(i)
    )
    return tuple({i.id: i for i in (*in_question(world, view, quiet), *dead)}.values())


def _ours_to_lose(world: World, view: ClusterView, node: str) -> bool:
    return _at_stake(view, node) and not node_drains.drained_by_others(world, view.nodes[node])


def _at_stake(view: ClusterView, node: str) -> bool:
    """Whether it serves, or a job is still on it. A node that Slurm's power saving has off does not serve."""
    shown = view.nodes[node]
    return not ((shown.out_of_service or shown.asleep) and slurm_view.free_of_jobs(view, node))


def watch_silence(world: World, new_id: Callable[[datetime], str]) -> Change:
    """Open a suspicion for a node that fell silent, close it when the node reports, and move it by the verdict about the node.

    A node with an open fault gets no second incident: the one that it has becomes dead. A node that slurmctld itself has set DOWN, while no
    controller listened or during maintenance, is not in an operator's hands: it is suspected although no job is left on it."""
    view = slurm_view.fresh_view(world)
    silent = set(silent_nodes(world))
    incidents: list[Incident] = []
    events: list[Event] = []
    for incident in world.book.open_incidents():
        node = incident.node
        heard = node not in silent and node_agents.agent_of(world, node) is not None
        explained = None if heard else hands_off.explains_silence(world, node)
        if incident.state is IncidentState.SUSPECTED and (heard or explained is not None):
            closed, seen = close(incident, world.now, explained.text if explained else "the agent reports again")
            incidents.append(closed)
            events += seen
    frozen = freeze_reason(world, silent)
    if view is None or frozen is not None:
        return Change(incidents=tuple(incidents), events=tuple(events))
    asked = [i for i in in_question(world, view, silent) if i.node in silent]
    held = common_cause.braked(common_cause.groups(world, silent)) if asked else {}
    for incident in asked:
        judged, seen = _judge(world, view, incident, silent, held)
        if judged != incident:
            incidents.append(judged)
            events += seen
    for node in sorted((silent & set(view.nodes)) - {i.node for i in asked}):
        if (
            (_at_stake(view, node) or view.nodes[node].down_by_slurm)
            and hands_off.explains_silence(world, node) is None
            and not any(node_incidents.acting(i) for i in world.book.open_on(node))
        ):
            suspicion, seen = _suspicion(world, node, new_id)
            incidents.append(suspicion)
            events += seen
    return Change(incidents=tuple(incidents), events=tuple(events))


def _suspicion(world: World, node: str, new_id: Callable[[datetime], str]) -> Moved:
    agents = world.agents.get(node, ())
    last = max((a.last_heard for a in agents), default=world.listening_since or world.now)
    record = world.book.nodes.get(node)
    new = NewIncident(
        id=new_id(world.now),
        kind=IncidentKind.SILENCE,
        node=node,
        instance_id=record.instance_id if record else "",
        boot_id=record.boot_id if record else "",
        severity=Severity.WARNING,
        remedy=Remedy.NONE,
        check=SILENT_CHECK,
        headline=f"{SILENT_CHECK}: agent last reported at {last:%H:%M:%S} UTC",
        fault_at=last,
        note="silent: unknown, neither healthy nor failed; asking peers and the provider",
    )
    return open_incident(new, IncidentState.SUSPECTED, world.now)


def _judge(
    world: World,
    view: ClusterView,
    incident: Incident,
    silent: Collection[str],
    held: Mapping[str, common_cause.SilentGroup],
) -> Moved:
    found = evidence.gather(world, view, incident)
    verdict = judge(found)
    suspicion = incident.state is IncidentState.SUSPECTED
    off = any(isinstance(e, PowerOff) for e in found)
    group = common_cause.holds(world, incident, held)
    note = _note(world, view, incident, found, group)
    if group is not None or verdict in (DeathVerdict.SILENT, DeathVerdict.SUSPECT):
        return (replace(incident, note=note) if suspicion and note else incident), []
    if not off and (
        _still_asked(world, incident)
        or not _settled(world, incident, silent)
        or not unreached.asked(world, incident.node)
    ):
        return incident, []
    named = ", ".join(_name(e) for e in found if isinstance(e, LivingPeer | PowerOff))
    if verdict is DeathVerdict.DEAD:
        return _dead(world, incident, f"{DEAD_CHECK}: silent to the controller, and unreachable for {named}")
    if suspicion:
        return _witnessed(world, incident, f"{SILENT_CHECK}: silent to the controller, and unreachable for {named}")
    return incident, []


def _note(
    world: World,
    view: ClusterView,
    incident: Incident,
    found: tuple[DeathEvidence, ...],
    group: common_cause.SilentGroup | None,
) -> str:
    """Reason why nothing is concluded, for people; empty: the incident says it already."""
    if group is not None:
        return group.reason
    for each in found:
        if isinstance(each, TcpAnswered):
            who = each.by if each.by == evidence.HEAD else "a peer"
            return f"cut off from the controller, but {who} reaches it: it lives, nothing is done"
        if isinstance(each, StepsAdvance):
            return f"it does not report, but job {each.job_id} advances on its other nodes: it lives, nothing is done"
    why = domains.why_no_witness(world, view, incident.node)
    return f"silent; no peer can bear witness, since {why}: held" if why is not None else ""


def _settled(world: World, incident: Incident, silent: Collection[str]) -> bool:
    """Whatever fell silent at the same moment would be seen by now: one more heartbeat of the node than it takes to be silent has passed,
    and every other node is silent or answered two heartbeats after this one, which may have lost its last before it fell silent. Of nodes
    without an agent those of its failure domain."""
    own_s = max((a.heartbeat_interval_s for a in world.agents.get(incident.node, ())), default=LONGEST_HEARTBEAT_S)
    if evidence.silent_s(world, incident) < own_s * (world.policy.death.silent_after_heartbeats + 1):
        return False
    since = evidence.last_answered(world, incident) + timedelta(seconds=2 * own_s)
    heard = all(n in silent or n == incident.node or not _yet_to_report(world, n, since) for n in _with_agents(world))
    return heard and not agentless.awaited(world, incident.node, since)


def _with_agents(world: World) -> set[str]:
    return {*world.agents, *_unheard(world)}


def _yet_to_report(world: World, node: str, since: datetime) -> bool:
    """Whether a node that counts as reporting has not answered since then, and may have fallen silent before."""
    agents = world.agents.get(node, ())
    reporting = [a for a in agents if not node_agents.is_silent(world, a)]
    if agents and (not reporting or any(a.last_heard > since for a in reporting)):
        return False
    probe = world.head.get(node)
    return not (agents and _slow(agents) and probe is not None and probe.answered and probe.at > since)


def _dead(world: World, incident: Incident, headline: str) -> Moved:
    """A suspicion opens; a fault that the node has already is as grave as that from now on."""
    suspicion = incident.state is IncidentState.SUSPECTED
    dead = replace(
        incident,
        before_death=None if suspicion else incident.fault,
        severity=Severity.FATAL,
        remedy=max(Remedy.REPLACE, incident.remedy, key=tuple(Remedy).index),
        check=DEAD_CHECK,
        dead=True,
        headline=headline,
        gpu_minors=None,
        note="",
    )
    state = IncidentState.OPEN if suspicion else incident.state
    after, events = raise_to(dead, state, world.now, Detection(fault_text="last sign of life"))
    detail = {"check": after.check, "severity": after.severity.value, "remedy": after.remedy.value}
    return after, [*events, Event(world.now, EventKind.NODE_DEAD, after.id, after.node, text=headline, detail=detail)]


def _witnessed(world: World, incident: Incident, headline: str) -> Moved:
    """Two witnesses, not dead: the node is drained, and what runs there runs on."""
    after = replace(incident, severity=Severity.DEGRADED, remedy=Remedy.REBOOT, headline=headline, note="")
    return raise_to(after, IncidentState.OPEN, world.now, Detection(fault_text="last sign of life"))


def _still_asked(world: World, incident: Incident) -> bool:
    """A peer that was asked has not had the time to answer: it may be the one that reaches the node."""
    patience = timedelta(seconds=2 * world.policy.death.probe_timeout_s)
    return any(
        isinstance(i.action, SendOrder) and not i.settled and world.now - i.planned_at < patience
        for i in world.book.intents_of(incident.id)
    )


def _name(found: LivingPeer | PowerOff) -> str:
    return f"peer {found.peer}" if isinstance(found, LivingPeer) else f"the provider ({found.state})"
