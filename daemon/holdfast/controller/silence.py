"""Silent nodes. Silence is *unknown*: neither healthy nor failed. Pure.

A node is dead only when a second witness, which does not share the controller's path to it, agrees: peer agents that cannot reach it
either, or the provider. Slurm's own "not responding" is seen from the head node like our silence, so it is no second witness. Many
nodes silent at once make the controller the suspect."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.controller import facts, hands_off
from holdfast.model.action import CheckInstance, Intent, IntentState, SendOrder, Verb
from holdfast.model.answers import unreached_errno
from holdfast.model.book import Change, World
from holdfast.model.cluster import ClusterView
from holdfast.model.event import Event, EventKind
from holdfast.model.incident import Incident, IncidentKind, IncidentState
from holdfast.model.transitions import Detection, Moved, NewIncident, close, open_incident, raise_to
from holdfast_checks.result import Remedy, Severity

ALIVE_ERRNO = errno.ECONNREFUSED
"""A refused connection was answered by the node's kernel: it lives."""
_OFF = frozenset({"stopping", "stopped", "shutting-down", "terminated"})
_FAULTY = frozenset({IncidentState.OPEN, IncidentState.CONTAINED})
SILENT_CHECK = "node.silent"
DEAD_CHECK = "node.dead"


def silent_nodes(world: World) -> tuple[str, ...]:
    """Nodes known to have had an agent, of which none was heard for long."""
    intervals = {a.heartbeat_interval_s for agents in world.agents.values() for a in agents}
    before = {
        interval_s: facts.silent_before(world, interval_s) for interval_s in intervals
    }  # few, for thousands of agents
    silent = [
        node
        for node, agents in world.agents.items()
        if agents and all(a.last_heard < before[a.heartbeat_interval_s] for a in agents)
    ]
    since = world.listening_since
    if since is not None and world.now - since > timedelta(seconds=30):
        silent += [n for n, r in world.book.nodes.items() if r.boot_id and not world.agents.get(n)]
    return tuple(sorted(silent))


def freeze_reason(world: World, silent: Iterable[str] | None = None) -> str | None:
    """Why nothing may be concluded from silence now; None: it may. ``silent``: :func:`silent_nodes`, where they are known already."""
    if world.frozen is not None:
        return world.frozen
    unexplained = [n for n in (silent_nodes(world) if silent is None else silent) if not _explained(world, n)]
    if len(unexplained) <= 2:
        return None
    known = _known(world)
    if len(unexplained) > known * world.policy.death.silent_share_suspects_controller:
        return f"{len(unexplained)} of {known} agents are silent at once: the controller's own network is the suspect"
    return None


def frozen_since(world: World) -> datetime | None:
    """Since when so many agents are silent at once that nothing is concluded; None: they are not, or the controller has just started."""
    silent = silent_nodes(world)
    if world.frozen is not None or freeze_reason(world, silent) is None:
        return None
    times = sorted(_fell_silent(world, node) for node in silent if not _explained(world, node))
    return times[max(2, int(_known(world) * world.policy.death.silent_share_suspects_controller))]


def _fell_silent(world: World, node: str) -> datetime:
    beats = world.policy.death.silent_after_heartbeats
    since = (a.last_heard + timedelta(seconds=a.heartbeat_interval_s * beats) for a in world.agents.get(node, ()))
    return max(since, default=world.listening_since or world.now)


def _known(world: World) -> int:
    """Nodes of Slurm that have, or had, an agent."""
    names = set(world.agents) | {n for n, r in world.book.nodes.items() if r.boot_id}
    return len(names if world.view is None else names & set(world.view.nodes))


def _explained(world: World, node: str) -> bool:
    """A node whose silence says nothing about the controller: it was pronounced dead, somebody took it out of service,
    Slurm's power saving has it off, or Slurm has it no more (decommissioned, or renamed)."""
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
                and facts.acting(i)
                and _ours_to_lose(world, view, i.node)
            )
        )
    )


def _ours_to_lose(world: World, view: ClusterView, node: str) -> bool:
    return _at_stake(view, node) and not facts.drained_by_others(world, view.nodes[node])


def _at_stake(view: ClusterView, node: str) -> bool:
    """It serves, or somebody's job is still on it. What Slurm's power saving has put off serves nobody."""
    shown = view.nodes[node]
    return not ((shown.out_of_service or shown.asleep) and facts.free_of_jobs(view, node))


def watch_silence(world: World, new_id: Callable[[datetime], str]) -> Change:
    """Open a suspicion for a node that fell silent, close it when it is heard, and pronounce death on two witnesses.

    A node with a fault of its own is not suspected by a second incident: the one that it has becomes dead."""
    view = facts.fresh_view(world)
    silent = set(silent_nodes(world))
    incidents: list[Incident] = []
    events: list[Event] = []
    for incident in world.book.open_incidents():
        node = incident.node
        heard = node not in silent and (world.frozen is None or facts.agent_of(world, node) is not None)
        explained = None if heard else hands_off.explains_silence(world, node)
        if incident.state is IncidentState.SUSPECTED and (heard or explained is not None):
            closed, seen = close(incident, world.now, explained.text if explained else "the agent is heard again")
            incidents.append(closed)
            events += seen
    frozen = freeze_reason(world, silent)
    if view is None or frozen is not None:
        return Change(incidents=tuple(incidents), events=tuple(events))
    asked = [i for i in in_question(world, view, silent) if i.node in silent]
    for incident in asked:
        judged, seen = _judge(world, incident)
        if judged != incident:
            incidents.append(judged)
            events += seen
    for node in sorted((silent & set(view.nodes)) - {i.node for i in asked}):
        if (
            _at_stake(view, node)
            and hands_off.explains_silence(world, node) is None
            and not any(facts.acting(i) for i in world.book.open_on(node))
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
        headline=f"{SILENT_CHECK}: agent last heard {last:%H:%M:%S} UTC",
        fault_at=last,
        note="silent: unknown, neither healthy nor failed; asking peers and the provider",
    )
    return open_incident(new, IncidentState.SUSPECTED, world.now)


def witnesses(world: World, incident: Incident) -> tuple[Intent, ...]:
    """The newest settled answer of each witness about this silence."""
    newest: dict[str, Intent] = {}
    for intent in world.book.intents_of(incident.id):
        probe = isinstance(intent.action, SendOrder) and intent.action.verb is Verb.PROBE_PEER
        if (probe or isinstance(intent.action, CheckInstance)) and intent.state in (
            IntentState.DONE,
            IntentState.FAILED,
        ):
            newest[intent.step.text] = intent
    since = world.now - timedelta(seconds=3 * world.policy.death.reprobe_s)
    heard = max(
        (a.last_heard for a in world.agents.get(incident.node, ())), default=since
    )  # an earlier silence is over
    return tuple(
        i for _, i in sorted(newest.items()) if i.finished_at is not None and i.finished_at >= max(since, heard)
    )


def says_dead(answer: Intent) -> bool | None:
    """True: this witness cannot reach the machine or sees it off; False: it lives; None: it does not know."""
    if isinstance(answer.action, CheckInstance):
        if answer.state is not IntentState.DONE:
            return None
        return answer.result.get("state") in _OFF or answer.result.get("healthy") is False or None
    code = unreached_errno(answer.result)
    if answer.state is IntentState.DONE or code == ALIVE_ERRNO:
        return False
    return True if code is not None else None


def _judge(world: World, incident: Incident) -> Moved:
    answers = witnesses(world, incident)
    verdicts = [(a, says_dead(a)) for a in answers]
    alive = [a for a, v in verdicts if v is False]
    dead = [a for a, v in verdicts if v is True]
    suspicion = incident.state is IncidentState.SUSPECTED
    if alive:
        lives = "cut off from the controller, but a peer reaches it: it lives, nothing is done"
        return (replace(incident, note=lives) if suspicion else incident), []
    if not dead or _still_asked(world, incident):
        return incident, []
    named = ", ".join(_name(a) for a in dead)
    return _dead(world, incident, f"{DEAD_CHECK}: silent to the controller, and unreachable for {named}")


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


def _still_asked(world: World, incident: Incident) -> bool:
    """A peer that was asked has not had the time to answer: it may be the one that reaches the node."""
    patience = timedelta(seconds=2 * world.policy.death.probe_timeout_s)
    return any(
        isinstance(i.action, SendOrder) and not i.settled and world.now - i.planned_at < patience
        for i in world.book.intents_of(incident.id)
    )


def _name(answer: Intent) -> str:
    if isinstance(answer.action, SendOrder):
        return f"peer {answer.action.node}"
    return f"the provider ({answer.result.get('state')})"
