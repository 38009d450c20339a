"""Evidence about a silent node, gathered for :mod:`verdict`. Pure."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.decisions.common import node_agents, slurm_view
from holdfast.decisions.common.once import once_per_world
from holdfast.decisions.death import domains
from holdfast.decisions.death.lone_word import OtherEvidence, without_a_lone_word
from holdfast.decisions.death.verdict import (
    AgentSpoke,
    DeathEvidence,
    LivingPeer,
    PowerOff,
    SeenRunning,
    SlurmHeard,
    StepsAdvance,
    TcpAnswered,
)
from holdfast.model.actions.action import CheckInstance, Intent, IntentState, SendOrder, Verb
from holdfast.model.agents import answers
from holdfast.model.agents.report import AgentView
from holdfast.model.book import Book, CheckpointRecord, World
from holdfast.model.incidents.incident import Incident
from holdfast.model.slurm.cluster import ClusterView, Job, Node

ALIVE_ERRNO = errno.ECONNREFUSED
"""A refused connection was answered by the node's kernel: it lives."""
HEAD = "the head node"
TERMINATED = "terminated"
OFF = frozenset({"stopped", TERMINATED})
OFF_LASTS_S = 30.0
"""Power that was off for this long was not switched off and on by hand: no one holds a button for this long."""
"""Only off counts: a machine that is still stopping is polled again."""
ALIVE_EVERY = timedelta(seconds=60)
"""A passing sign of life of a node that the head node does not reach is put on record this often."""
_VETOES = TcpAnswered | SlurmHeard | StepsAdvance | AgentSpoke
_STEP_PATIENCE_S, _STEP_PATIENCE_MAX_S = 10.0, 300.0
"""Bounds on how long the newest step of a job speaks for its nodes; in between it is twice the job's own longest gap."""
_STEP_UNKNOWN_S = 30.0
"""The same for a job that has reported one step so far."""
_USERS_WORD_S = 120.0
"""A job's report of its steps counts for a node that holds other users' jobs as well until the node has been silent for this: more than a
cut of a minute, less than a default SlurmdTimeout."""


def _agents(world: World, incident: Incident) -> tuple[AgentView, ...]:
    """Those of the machine that the incident is about: its successor may report under the node's name already."""
    there = world.agents.get(incident.node, ())
    machine = incident.serving_id
    return tuple(a for a in there if not machine or not a.instance_id or a.instance_id == machine)


def last_heard(world: World, incident: Incident) -> datetime:
    """Time of the last report of the machine's agent; from the incident if none has reported to this controller."""
    heard = max((a.last_heard for a in _agents(world, incident)), default=None)
    return heard if heard is not None else incident.fault_at


def last_answered(world: World, incident: Incident) -> datetime:
    """Time when the machine last answered the head node: its agent reported, or its kernel was reached."""
    probe, record = world.head.get(incident.node), world.book.nodes.get(incident.node)
    answers = [last_heard(world, incident)]
    if probe is not None and probe.answered_at is not None:
        answers.append(probe.answered_at)
    if record is not None and record.unreached_since is not None and record.unreached_until is None:
        answers.append(record.unreached_since)
    return max(answers)


def last_alive(world: World, incident: Incident, found: Iterable[DeathEvidence]) -> datetime:
    """The machine's last sign of life of any kind, also those that have passed. ``found``: what is known now (:func:`gather`)."""
    record = world.book.nodes.get(incident.node)
    signs = [e.at for e in found if isinstance(e, _VETOES)]
    if record is not None and record.alive_at is not None:
        signs.append(min(world.now, record.alive_at + ALIVE_EVERY))
    return max([last_answered(world, incident), *signs])


def alive_at(world: World, view: ClusterView, incident: Incident) -> datetime | None:
    """The newest sign of life of the silent machine now; None: there is none, or only one peer's report against all others. A sign in the
    future does not count: Slurm's view is from before the clock was set back."""
    signs = (e.at for e in gather(world, view, incident, patience_s=0) if isinstance(e, _VETOES))
    return max((at for at in signs if at <= world.now + timedelta(seconds=slurm_view.CLOCK_STEP_S)), default=None)


def silent_s(world: World, incident: Incident) -> float:
    """For how long the machine has not answered the head node, in seconds."""
    return (world.now - last_answered(world, incident)).total_seconds()


def gather(
    world: World, view: ClusterView, incident: Incident, *, patience_s: float | None = None
) -> tuple[DeathEvidence, ...]:
    """Gather all evidence for and against the death of the incident's node. ``patience_s``: how long one peer's report counts against all
    others; None: ``death.reboot_grace_s``."""
    since = last_heard(world, incident)
    found: list[DeathEvidence] = list(_answers(world, view, incident, since))
    head = world.head.get(incident.node)
    if head is not None and head.answered and head.at > since:
        found.append(TcpAnswered(head.at, HEAD))
    node = view.nodes.get(incident.node)
    if node is not None:
        answered = last_answered(world, incident)
        if (heard_at := _slurm_heard(world, view, node, answered)) is not None:
            found.append(SlurmHeard(heard_at))
        found += _all_steps(world, view, incident, answered)
    found += [AgentSpoke(a.last_heard) for a in _agents(world, incident) if not node_agents.is_silent(world, a)]
    around = OtherEvidence(
        head_failed=head is not None and not head.answered and head.at > since,
        slurm_lost_it=node is not None and not node.responding and slurm_view.slurm_settled(world),
        reached_by=_reached_by(world, incident, since),
        silent_s=silent_s(world, incident),
        patience_s=world.policy.death.reboot_grace_s if patience_s is None else patience_s,
    )
    return without_a_lone_word(found, around)


def alive(found: Iterable[DeathEvidence]) -> bool:
    """Whether there is any sign of life among it."""
    return any(isinstance(e, _VETOES) for e in found)


def power_off(world: World, incident: Incident) -> PowerOff | None:
    """The provider's newest answer about the incident's machine since the node fell silent, if it shows it off."""
    newest = _newest_check(world, incident, last_heard(world, incident))
    found = _of_the_provider(newest, incident) if newest is not None else None
    return found if isinstance(found, PowerOff) else None


def off_lasts(world: World, incident: Incident) -> bool:
    """Whether every answer of the provider for :data:`OFF_LASTS_S` up to the newest shows the machine off: one that was switched off and on
    by hand is not. A terminated one does not come back."""
    answers = _checks(world, incident, last_heard(world, incident))
    first = newest = None
    for answer in reversed(answers):
        said = _of_the_provider(answer, incident)
        if not isinstance(said, PowerOff):
            break
        if said.state == TERMINATED:
            return True
        first, newest = said, newest or said
    return first is not None and newest is not None and newest.at - first.at >= timedelta(seconds=OFF_LASTS_S)


def shown_off(book: Book, incident: Incident) -> bool:
    """Whether the newest answer of the provider about the incident's machine shows it off, whenever that was."""
    said = [i for i in book.intents_of(incident.id) if _is_check(i, incident.serving_id)]
    return bool(said) and isinstance(_of_the_provider(said[-1], incident), PowerOff)


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


def fell_with_its_power(world: World, incident: Incident, since: datetime) -> bool:
    """Whether the provider showed the machine off before it showed it running, of all that it has said since then."""
    said = (
        _of_the_provider(i, incident)
        for i in world.book.intents_of(incident.id)
        if isinstance(i.action, CheckInstance) and i.state is IntentState.DONE and (i.finished_at or since) >= since
    )
    return isinstance(next((each for each in said if each is not None), None), PowerOff)


def _answers(world: World, view: ClusterView, incident: Incident, since: datetime) -> Iterator[DeathEvidence]:
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


def _reached_by(world: World, incident: Incident, since: datetime) -> frozenset[str]:
    """Peers that reached the node recently, including those that are no longer asked."""
    return _reached_since(
        world, incident.id, max(since, world.now - timedelta(seconds=world.policy.death.reboot_grace_s))
    )


@once_per_world
def _reached_since(world: World, incident_id: str, since: datetime) -> frozenset[str]:
    return frozenset(
        f"peer {i.action.node}"
        for i in world.book.intents_of(incident_id)
        if isinstance(i.action, SendOrder)
        and i.action.verb is Verb.PROBE_PEER
        and i.finished_at is not None
        and i.finished_at >= since
        and _reached(i)
    )


def _reached(answer: Intent) -> bool:
    return answer.state is IntentState.DONE or answers.unreached_errno(answer.result) == ALIVE_ERRNO


def probes(world: World, incident: Incident, since: datetime) -> tuple[Intent, ...]:
    """The newest settled answer of each peer about this silence."""
    recent = max(since, world.now - timedelta(seconds=3 * world.policy.death.reprobe_s))
    settled = _settled_probes(world, incident.id)
    return tuple(i for i in settled if i.finished_at is not None and i.finished_at >= recent)


@once_per_world
def _settled_probes(world: World, incident_id: str) -> tuple[Intent, ...]:
    """The newest answer of each peer that was asked, whenever that was."""
    newest: dict[str, Intent] = {}
    for intent in world.book.intents_of(incident_id):
        probe = isinstance(intent.action, SendOrder) and intent.action.verb is Verb.PROBE_PEER
        if probe and intent.is_attempt and intent.state in (IntentState.DONE, IntentState.FAILED):
            newest[intent.step.text] = intent
    return tuple(intent for _, intent in sorted(newest.items()))


@dataclass(frozen=True, slots=True)
class ProviderAnswer:
    """The provider's answer about the machine, word for word."""

    at: datetime
    state: str
    checks_pass: bool
    elsewhere: str
    """The other node to which the provider assigns this machine: the answer does not count for this node then; empty: none."""

    @property
    def text(self) -> str:
        """For people; the time is UTC."""
        if self.elsewhere:
            return f"its provider shows its machine as that of {self.elsewhere} ({self.at:%H:%M:%S})"
        checks = f", its checks {'passing' if self.checks_pass else 'not passing'}" if self.state == "running" else ""
        return f"its provider shows it {self.state or 'in no state that it names'}{checks} ({self.at:%H:%M:%S})"


def provider_answer(world: World, incident: Incident) -> ProviderAnswer | None:
    """The provider's newest answer about the incident's machine since the node fell silent; None: there is none."""
    newest = _newest_check(world, incident, last_heard(world, incident))
    if newest is None:
        return None
    whose = str(newest.result.get("node", ""))
    return ProviderAnswer(
        at=newest.finished_at or newest.planned_at,
        state=str(newest.result.get("state", "")),
        checks_pass=newest.result.get("healthy") is True,
        elsewhere="" if whose == incident.node else whose,
    )


def _newest_check(world: World, incident: Incident, since: datetime) -> Intent | None:
    """The newest check of the provider. A machine that is off stays off until seen otherwise, so it does not expire while the node is
    silent."""
    mine = _checks(world, incident, since)
    return mine[-1] if mine else None


def _checks(world: World, incident: Incident, since: datetime) -> list[Intent]:
    """The provider's answers about the incident's machine since then, oldest first."""
    mine = _checks_of(world, incident.id, incident.serving_id)
    return [i for i in mine if i.finished_at is not None and i.finished_at >= since]


@once_per_world
def _checks_of(world: World, incident_id: str, instance_id: str) -> tuple[Intent, ...]:
    return tuple(i for i in world.book.intents_of(incident_id) if _is_check(i, instance_id))


def _is_check(intent: Intent, instance_id: str) -> bool:
    asked = isinstance(intent.action, CheckInstance) and intent.action.instance_id == instance_id
    return asked and intent.state is IntentState.DONE


def _of_the_provider(answer: Intent, incident: Incident) -> PowerOff | SeenRunning | None:
    state, whose = str(answer.result.get("state", "")), str(answer.result.get("node", ""))
    at = answer.finished_at or answer.planned_at
    if whose not in ("", incident.node):
        return None  # another node's machine: whatever its agent claims, this is no evidence about this one
    if state in OFF:
        return PowerOff(at, state)
    return SeenRunning(at) if state == "running" and answer.result.get("healthy") is True else None


def _of_a_peer(world: World, view: ClusterView, incident: Incident, answer: Intent) -> TcpAnswered | LivingPeer | None:
    if not isinstance(answer.action, SendOrder):
        return None
    peer, at = answer.action.node, answer.finished_at or answer.planned_at
    code = answers.unreached_errno(answer.result)
    if _reached(answer):
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
    """Time when slurmctld was last in contact with the node's slurmd; None: not known. slurmctld pings each slurmd every third of
    SlurmdTimeout: a node shown as responding two thirds after the agent's last report has answered since. Before that the flag means
    nothing, nor does the state right after a restart of slurmctld. With a SlurmdTimeout of 0 it pings only nodes that do not respond
    already, so a dead node is still shown as responding. A slurmd start time in the future was written before the clock was set back and is
    ignored."""
    if not node.responding or node.down or not slurm_view.slurm_settled(world):
        return None
    started = node.slurmd_start_time
    if started is not None and since + timedelta(seconds=1) < started <= world.now + timedelta(
        seconds=slurm_view.CLOCK_STEP_S
    ):
        return started
    known_s = world.background.slurmd_timeout_s
    if known_s == 0:
        return None
    timeout_s = slurm_view.SLURMD_TIMEOUT_S if known_s is None else known_s
    pinged = since + timedelta(seconds=timeout_s * 2 / 3)
    return view.read_at if view.read_at > pinged else None


def _all_steps(world: World, view: ClusterView, incident: Incident, since: datetime) -> Iterator[StepsAdvance]:
    """Steps reported by the jobs there. On a node of several users a job's reports count only for a while, so that it cannot keep the
    others' jobs on a dead node."""
    jobs = view.jobs_on(incident.node)
    if len({job.uid for job in jobs}) > 1 and silent_s(world, incident) > _USERS_WORD_S:
        return
    steps = (_steps(world, job, incident, since) for job in jobs)
    yield from (step for step in steps if step is not None)


def _steps(world: World, job: Job, incident: Incident, since: datetime) -> StepsAdvance | None:
    at = _newest_step(world, job, frozenset({incident.node}))
    began = since + timedelta(seconds=_interval_s(world, incident.node))
    return StepsAdvance(at, job.key.job_id) if at is not None and at > began else None


def advances(world: World, job: Job, away: frozenset[str]) -> bool:
    """Whether the job's other nodes still report steps."""
    return _newest_step(world, job, away) is not None


def newest_step_at(world: World, job: Job, away: frozenset[str]) -> datetime | None:
    """Time when one of the job's other nodes reported its newest step, however long ago; None: none did."""
    newest = _newest_record(world, job, away)
    return _stepped_at(newest) if newest is not None else None


def _newest_step(world: World, job: Job, away: frozenset[str]) -> datetime | None:
    """The same; None also if that is too long ago to show that the job still advances."""
    newest = _newest_record(world, job, away)
    if newest is None or world.now - _stepped_at(newest) > patience(newest):
        return None
    return _stepped_at(newest)


def _newest_record(world: World, job: Job, away: frozenset[str]) -> CheckpointRecord | None:
    others = set(job.nodes) - away
    if job.state != "RUNNING" or not others:
        return None
    told = [
        record
        for part in job.components
        for record in world.book.progress_of(part.key.job_id, job.uid, others, job.speaks_since)
        if record.progress_restarts in (None, job.restarts) and record.progress_at is not None
    ]
    return max(told, key=_stepped_at, default=None)


def _stepped_at(record: CheckpointRecord) -> datetime:
    at = record.step_at or record.progress_at
    assert at is not None  # noqa: S101 - records without progress were left out
    return at


def patience(record: CheckpointRecord) -> timedelta:
    """Time after its newest step during which a job still counts as advancing."""
    gaps = [gap for gap in (record.progress_gap_s, record.longest_step_s) if gap is not None]
    if not gaps:
        return timedelta(seconds=_STEP_UNKNOWN_S)
    return timedelta(seconds=min(max(2 * max(gaps), _STEP_PATIENCE_S), _STEP_PATIENCE_MAX_S))


def _interval_s(world: World, node: str) -> float:
    return max((a.heartbeat_interval_s for a in world.agents.get(node, ())), default=10.0)
