"""What is known of a silent node now, as evidence that :mod:`verdict` can judge. Pure."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from holdfast.controller import facts
from holdfast.controller.death import domains
from holdfast.controller.death.verdict import (
    AgentSpoke,
    Evidence,
    LivingPeer,
    PowerOff,
    SeenRunning,
    SlurmHeard,
    StepsAdvance,
    TcpAnswered,
)
from holdfast.model import answers
from holdfast.model.action import CheckInstance, Intent, IntentState, SendOrder, Verb
from holdfast.model.book import CheckpointRecord, World
from holdfast.model.cluster import ClusterView, Job, Node
from holdfast.model.incident import Incident
from holdfast.model.report import AgentView

ALIVE_ERRNO = errno.ECONNREFUSED
"""A refused connection was answered by the node's kernel: it lives."""
HEAD = "the head node"
OFF = frozenset({"stopped", "terminated"})
"""Only off counts: a machine that is on its way there is asked about again."""
_STEP_PATIENCE_S, _STEP_PATIENCE_MAX_S = 10.0, 300.0
"""Bounds on how long the newest step of a job speaks for its nodes; in between it is twice the job's own longest gap."""
_STEP_UNKNOWN_S = 30.0
"""The same for a job that has told of one step so far."""


def _agents(world: World, incident: Incident) -> tuple[AgentView, ...]:
    """Those of the machine that the incident is about: its successor may report under the node's name already."""
    there = world.agents.get(incident.node, ())
    machine = incident.serving_id
    return tuple(a for a in there if not machine or not a.instance_id or a.instance_id == machine)


def last_heard(world: World, incident: Incident) -> datetime:
    """When the machine's agent was last heard; as the incident says where this controller has heard none."""
    heard = max((a.last_heard for a in _agents(world, incident)), default=None)
    return heard if heard is not None else incident.fault_at


def silent_s(world: World, incident: Incident) -> float:
    """For how long the node's agents have not been heard, in seconds."""
    return (world.now - last_heard(world, incident)).total_seconds()


def gather(world: World, view: ClusterView, incident: Incident) -> tuple[Evidence, ...]:
    """Everything that speaks for or against the death of the incident's node."""
    since = last_heard(world, incident)
    found: list[Evidence] = list(_answers(world, view, incident, since))
    head = world.head.get(incident.node)
    if head is not None and head.answered and head.at > since:
        found.append(TcpAnswered(head.at, HEAD))
    node = view.nodes.get(incident.node)
    if node is not None:
        if (heard_at := _slurm_heard(world, view, node, since)) is not None:
            found.append(SlurmHeard(heard_at))
        steps = (_steps(world, job, incident, since) for job in view.jobs_on(incident.node))
        found += [step for step in steps if step is not None]
    found += [AgentSpoke(a.last_heard) for a in _agents(world, incident) if not facts.is_silent(world, a)]
    return tuple(found)


def alive(found: Iterable[Evidence]) -> bool:
    """Whether there is any sign of life among it."""
    return any(isinstance(e, TcpAnswered | SlurmHeard | StepsAdvance | AgentSpoke) for e in found)


def power_off(world: World, incident: Incident) -> PowerOff | None:
    """The provider's newest answer about the incident's machine since the node fell silent, if it shows it off."""
    newest = _newest_check(world, incident, last_heard(world, incident))
    found = _of_the_provider(newest, incident) if newest is not None else None
    return found if isinstance(found, PowerOff) else None


def died_of_power(world: World, incident: Incident) -> bool:
    """Whether the incident's node was found dead with the power of its first machine off, whatever has taken the machine's place since."""
    return incident.dead and any(
        isinstance(i.action, CheckInstance)
        and i.action.instance_id == incident.instance_id
        and i.state is IntentState.DONE
        and i.planned_at >= incident.fault_at
        and isinstance(_of_the_provider(i, incident), PowerOff)
        for i in world.book.intents_of(incident.id)
    )


def _answers(world: World, view: ClusterView, incident: Incident, since: datetime) -> Iterator[Evidence]:
    newest = _newest_check(world, incident, since)
    if newest is not None and (said := _of_the_provider(newest, incident)) is not None:
        yield said
    yield from (told for told in peers_said(world, view, incident).values() if told is not None)


def peers_said(world: World, view: ClusterView, incident: Incident) -> Mapping[str, TcpAnswered | LivingPeer | None]:
    """Peer → what its newest answer about this silence says; None: nothing."""
    return {
        answer.action.node: _of_a_peer(world, view, incident, answer)
        for answer in probes(world, incident, last_heard(world, incident))
        if isinstance(answer.action, SendOrder)
    }


def probes(world: World, incident: Incident, since: datetime) -> tuple[Intent, ...]:
    """The newest settled answer of each peer about this silence."""
    newest: dict[str, Intent] = {}
    for intent in world.book.intents_of(incident.id):
        probe = isinstance(intent.action, SendOrder) and intent.action.verb is Verb.PROBE_PEER
        if probe and intent.state in (IntentState.DONE, IntentState.FAILED):
            newest[intent.step.text] = intent
    recent = max(since, world.now - timedelta(seconds=3 * world.policy.death.reprobe_s))
    return tuple(i for _, i in sorted(newest.items()) if i.finished_at is not None and i.finished_at >= recent)


def _newest_check(world: World, incident: Incident, since: datetime) -> Intent | None:
    """What is off stays off until it is seen otherwise, so this answer does not age while the node is silent."""
    mine = [
        i
        for i in world.book.intents_of(incident.id)
        if isinstance(i.action, CheckInstance)
        and i.action.instance_id == incident.serving_id
        and i.state is IntentState.DONE
        and i.finished_at is not None
        and i.finished_at >= since
    ]
    return mine[-1] if mine else None


def _of_the_provider(answer: Intent, incident: Incident) -> PowerOff | SeenRunning | None:
    state, whose = str(answer.result.get("state", "")), str(answer.result.get("node", ""))
    at = answer.finished_at or answer.planned_at
    if whose not in ("", incident.node):
        return None  # another node's machine: whatever its agent claims, it says nothing of this one
    if state in OFF:
        return PowerOff(at, state)
    return SeenRunning(at) if state == "running" and answer.result.get("healthy") is True else None


def _of_a_peer(world: World, view: ClusterView, incident: Incident, answer: Intent) -> TcpAnswered | LivingPeer | None:
    if not isinstance(answer.action, SendOrder):
        return None
    peer, at = answer.action.node, answer.finished_at or answer.planned_at
    code = answers.unreached_errno(answer.result)
    if answer.state is IntentState.DONE or code == ALIVE_ERRNO:
        return TcpAnswered(at, f"peer {peer}")
    if code is None or not answers.control_reached(answer.result) or not answers.reached_before(answer.result):
        return None
    if domains.on_duty(world, peer) is None or not _same_domain(world, view, peer, incident.node):
        return None
    return LivingPeer(at, peer)


def _same_domain(world: World, view: ClusterView, one: str, other: str) -> bool:
    nodes, policy, addresses = view.nodes, world.policy.death, world.background.addresses
    if one not in nodes or other not in nodes:
        return False
    here = domains.domain_of(nodes[one], policy, addresses)
    return here is not None and here == domains.domain_of(nodes[other], policy, addresses)


def _slurm_heard(world: World, view: ClusterView, node: Node, since: datetime) -> datetime | None:
    """slurmctld pings each slurmd every third of SlurmdTimeout: a node that it still shows responding two thirds after the agent's last
    report has answered it since. Before that the flag says nothing; its own state after a restart of slurmctld says nothing either. With a
    SlurmdTimeout of 0 it pings only what does not respond already, so that a node which died goes on to be shown responding."""
    if not node.responding or node.down or not facts.slurm_settled(world):
        return None
    started = node.slurmd_start_time
    if started is not None and started > since + timedelta(seconds=1):
        return started
    known_s = world.background.slurmd_timeout_s
    if known_s == 0:
        return None
    timeout_s = facts.SLURMD_TIMEOUT_S if known_s is None else known_s
    pinged = since + timedelta(seconds=timeout_s * 2 / 3)
    return view.read_at if view.read_at > pinged else None


def _steps(world: World, job: Job, incident: Incident, since: datetime) -> StepsAdvance | None:
    at = _newest_step(world, job, frozenset({incident.node}))
    began = since + timedelta(seconds=_interval_s(world, incident.node))
    return StepsAdvance(at, job.key.job_id) if at is not None and at > began else None


def advances(world: World, job: Job, away: frozenset[str]) -> bool:
    """Whether the job's other nodes still report steps."""
    return _newest_step(world, job, away) is not None


def _newest_step(world: World, job: Job, away: frozenset[str]) -> datetime | None:
    """When one of the job's other nodes reported its newest step; None: too long ago to show that the job still advances."""
    others = set(job.nodes) - away
    if job.state != "RUNNING" or not others:
        return None
    told = [
        record
        for part in job.components
        for record in world.book.progress_of(part.key.job_id, job.uid, others)
        if record.progress_restarts in (None, job.restarts) and record.progress_at is not None
    ]
    newest = max(told, key=_stepped_at, default=None)
    if newest is None or world.now - _stepped_at(newest) > patience(newest):
        return None
    return _stepped_at(newest)


def _stepped_at(record: CheckpointRecord) -> datetime:
    at = record.step_at or record.progress_at
    assert at is not None  # noqa: S101 - records without progress were left out
    return at


def patience(record: CheckpointRecord) -> timedelta:
    """How long after its newest step a job still counts as advancing."""
    gaps = [gap for gap in (record.progress_gap_s, record.longest_step_s) if gap is not None]
    if not gaps:
        return timedelta(seconds=_STEP_UNKNOWN_S)
    return timedelta(seconds=min(max(2 * max(gaps), _STEP_PATIENCE_S), _STEP_PATIENCE_MAX_S))


def _interval_s(world: World, node: str) -> float:
    return max((a.heartbeat_interval_s for a in world.agents.get(node, ())), default=10.0)
