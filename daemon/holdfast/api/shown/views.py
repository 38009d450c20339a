"""From the core's nouns to the shapes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from holdfast.api.answers.job_shapes import CheckpointShape, JobShape
from holdfast.api.answers.node_shapes import AgentShape, ClusterShape, NodeShape
from holdfast.api.answers.proposal_shapes import NodePolicyShape
from holdfast.api.answers.shapes import ActionShape, FindingShape, IncidentShape, RecoveryShape, TimingsShape
from holdfast.api.shown.restraints import Head, restraints_shape
from holdfast.decisions.common import brake_scopes, node_agents
from holdfast.decisions.common.node_policy import NodePolicy, policy_of
from holdfast.decisions.nodes import hands_off
from holdfast.decisions.nodes.health import unrepaired
from holdfast.metrics.timings import IncidentTimings
from holdfast.model.actions.action import Intent
from holdfast.model.agents.report import AgentView, SeenFinding
from holdfast.model.book import Book, CheckpointRecord, World, told_of
from holdfast.model.incidents.incident import Incident, Recovery
from holdfast.model.policies.node_sets import RUNGS
from holdfast.model.policies.policy import DeathPolicy, Policy
from holdfast.model.slurm.cluster import Job, Node

Agents = Mapping[str, tuple[AgentView, ...]]


def incident_shape(incident: Incident) -> IncidentShape:
    shape = IncidentShape.model_validate(incident)
    if shape.gpu_minors is not None:
        shape.gpu_minors.sort()
    return shape


def action_shape(intent: Intent) -> ActionShape:
    return ActionShape(
        key=intent.key,
        incident_id=intent.incident_id,
        kind=intent.kind,
        target=intent.action.target.text,
        state=intent.state,
        reason=intent.reason,
        planned_at=intent.planned_at,
        started_at=intent.started_at,
        finished_at=intent.finished_at,
        outcome=intent.outcome,
        retryable=intent.retryable,
    )


_COUNTS = ("repeats", "last_seen_at")


def finding_shape(seen: SeenFinding) -> FindingShape:
    own = {n: getattr(seen.finding, n) for n in FindingShape.model_fields if n not in _COUNTS}
    return FindingShape(**own, repeats=seen.repeats, last_seen_at=seen.last_seen_at)


def timings_shape(timings: IncidentTimings) -> TimingsShape:
    return TimingsShape.model_validate(timings)


def cluster_shape(
    world: World | None, agents: Agents, now: datetime, head: Head, *, slurm_seen_at: datetime | None = None
) -> ClusterShape:
    """All nodes that Slurm, an agent or an open incident knows. ``slurm_seen_at``: Slurm's newest reading, also while no cycle passes."""
    book, view = (world.book, world.view) if world else (Book(), None)
    named = set(agents) | {i.node for i in book.open_incidents()} | set(view.nodes if view else ())
    return ClusterShape(
        **dict(restraints_shape(world, now, head)),
        cluster=view.cluster if view else "",
        slurm_read_at=slurm_read_at(world, slurm_seen_at, now),
        untaken=None,
        nodes=[_node(name, world, agents.get(name, ()), now) for name in sorted(named)],
    )


_GONE = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN"})


def agent_counts(world: World | None, agents: Agents, now: datetime) -> Counter[str]:
    """Status → agents. Nodes that Slurm does not show, or shows switched off, are left out: no agent runs there."""
    shown = world.view.nodes.values() if world is not None and world.view is not None else ()
    names = {n.name for n in shown if n.base_state != "FUTURE" and not n.flags & _GONE} if shown else set(agents)
    death = world.policy.death if world else DeathPolicy()
    found = ([_status(a, death, now) for a in agents.get(name, ())] or ["unknown"] for name in names)
    return Counter(status for each in found for status in each)


def agent_statuses(world: World | None, agents: Agents, now: datetime) -> dict[str, list[str]]:
    """Node → the status of each of its agents."""
    death = world.policy.death if world else DeathPolicy()
    return {name: [_status(a, death, now) for a in each] for name, each in agents.items()}


def _status(agent: AgentView, death: DeathPolicy, now: datetime) -> str:
    silent_s = (now - agent.last_heard).total_seconds()
    return "heard" if silent_s <= death.silent_after_heartbeats * agent.heartbeat_interval_s else "silent"


def slurm_read_at(world: World | None, seen_at: datetime | None, now: datetime) -> datetime | None:
    """When Slurm was last read, by a cycle or since (``seen_at``); None: Slurm does not answer, and no decision is based on the old
    state."""
    latest = newest_reading(world, seen_at)
    most_s = (world.policy if world is not None else Policy()).view_max_age_s
    return latest if latest is not None and now - latest <= timedelta(seconds=most_s) else None


def newest_reading(world: World | None, seen_at: datetime | None) -> datetime | None:
    """Of Slurm, however old; None: never."""
    in_world = world.view.read_at if world is not None and world.view is not None else None
    return max((at for at in (in_world, seen_at) if at is not None), default=None)


def _spare(world: World | None, node: str) -> bool:
    """Whether the node is in the reservation of spares, as Slurm shows it."""
    pool = world.view.reservations.get(world.policy.spare_reservation) if world and world.view else None
    return pool is not None and node in pool.nodes


def _node(name: str, world: World | None, agents: tuple[AgentView, ...], now: datetime) -> NodeShape:
    view, book = (world.view, world.book) if world else (None, Book())
    node = view.nodes.get(name) if view else None
    incidents, jobs = book.open_on(name), view.jobs_on(name) if view else ()
    death = world.policy.death if world else DeathPolicy()
    lemon = world.background.lemons.get(name) if world else None
    return NodeShape(
        name=name,
        state=_state(node) if node else "",
        reason=node.reason if node else "",
        partitions=list(node.partitions) if node else [],
        gpus=node.gpu_count if node else 0,
        jobs=[j.key.job_id for j in jobs],
        job_names=[j.shown_id for j in jobs],
        spare=_spare(world, name),
        score=lemon.score if lemon else 0,
        lemon=lemon is not None and lemon.holds(now),
        agents=[_agent(a, death, now) for a in agents] or [_never_heard()],
        incidents=[incident_shape(i) for i in incidents],
        why="; ".join(_why(name, world, incidents)),
        trouble=_trouble(name, world, node),
        policy=policy_shape_of(name, world) if world else None,
    )


def policy_shape_of(name: str, world: World) -> NodePolicyShape:
    """What Holdfast may do to the node."""
    return _policy(policy_of(name, world))


def _policy(policy: NodePolicy) -> NodePolicyShape:
    return NodePolicyShape(
        mode=policy.mode.value,
        why=policy.why,
        asks=sorted(kind.value for kind in policy.asks),
        rungs=[rung for rung in RUNGS if rung in policy.rungs],
        never_touch=policy.never_touch,
        sets=list(policy.sets),
    )


def node_shape(name: str, world: World | None, agents: Agents, now: datetime) -> NodeShape | None:
    """One node; None: neither Slurm, an agent nor the store knows it."""
    known = name in agents or (world is not None and (name in world.book.nodes or bool(world.book.open_on(name))))
    if not known and not (world and world.view and name in world.view.nodes):
        return None
    return _node(name, world, agents.get(name, ()), now)


def _why(name: str, world: World | None, incidents: Iterable[Incident]) -> list[str]:
    """In whose hands the node is, what is wrong with it, and which brake or pause holds back what would be done about it."""
    if world is None:
        return []
    hands, held = _in_other_hands(name, world), _held_back(world, name, [i.note for i in incidents])
    notes, said = ((i.headline, i.note) for i in incidents), (*hands, *held)
    whys = [f"{what}: {note}" if note and note not in said else what for what, note in notes]  # rule prose: said once
    return [*hands, *dict.fromkeys(whys), *(held if whys else ())]


def _trouble(name: str, world: World | None, node: Node | None) -> str:
    """What is wrong with a node that Slurm has in service, and of which no open incident speaks; empty: nothing is known. A node that
    never had an agent, that sleeps, or that is in an operator's hands, is not wrong."""
    if world is None or node is None or node.out_of_service or node.asleep:
        return ""
    agent = node_agents.agent_of(world, name)
    found = _unheard(name, world) if agent is None else _unrepaired(name, world, agent)
    return "" if not found or _in_other_hands(name, world) else found


def _unheard(name: str, world: World) -> str:
    """Of a silent agent its status says enough."""
    record = world.book.nodes.get(name)
    had_one = record is not None and bool(record.boot_id) and not world.agents.get(name)
    return "its agent has not reported since the controller started" if had_one and world.frozen is None else ""


def _unrepaired(name: str, world: World, agent: AgentView) -> str:
    if not agent.failing:
        return ""
    fault = unrepaired((i for i in world.book.incidents.values() if i.node == name), agent)
    failing = ", ".join(agent.failing[:5])
    return f"put back before incident {fault.id} was repaired; these checks fail: {failing}" if fault else ""


_SAID = (hands_off.Hands.JUST_BACK, hands_off.Hands.REBOOT_WAITS)


def _in_other_hands(name: str, world: World) -> list[str]:
    """Maintenance or a reboot, and the time that a silent node has after it; of a drain and of power saving Slurm's own state says
    enough."""
    hands = hands_off.on(world, name)
    if hands is None and node_agents.agent_of(world, name) is None:
        hands = hands_off.explains_silence(world, name)
    return [hands.text] if hands is not None and (hands.kept or hands.hands in _SAID) else []


def _held_back(world: World, name: str, notes: Iterable[str]) -> list[str]:
    """Without a brake that a note of the node's speaks of."""
    book, whys = world.book, list[str]()
    if book.paused:
        whys.append(f"paused by {book.paused}")
    brakes = brake_scopes.about(world, (b for _, b in sorted(book.brakes.items()) if b.holds), (name,))
    silent = [b for b in brakes if not any(b.reason in note for note in notes)]  # rule prose: said once
    return whys + [f"brake {b.name}: {b.reason}" for b in silent]


def _state(node: Node) -> str:
    return "+".join([node.base_state, *sorted(node.flags)])


def _agent(agent: AgentView, death: DeathPolicy, now: datetime) -> AgentShape:
    return AgentShape(
        status=_status(agent, death, now),
        instance_id=agent.instance_id,
        boot_id=agent.boot_id,
        last_heard=agent.last_heard,
        heartbeat_interval_s=agent.heartbeat_interval_s,
        version=agent.agent_version,
        clock_offset_s=round(agent.clock_offset_s, 3),
        all_ok=agent.all_ok,
        failing=list(agent.failing),
        authorities=None if agent.authorities is None else list(agent.authorities),
        gres_problem=agent.gres_problem,
        set_aside=agent.set_aside,
        set_aside_since=agent.set_aside_since,
        checks_version=agent.checks_version,
        checks_refused=agent.checks_refused,
        fabric_moved_at=agent.fabric_moved_at,
    )


def _never_heard() -> AgentShape:
    return AgentShape(
        status="unknown",
        instance_id="",
        boot_id="",
        last_heard=None,
        version="",
        clock_offset_s=0.0,
        all_ok=False,
        failing=[],
        fabric_moved_at=None,
    )


def job_shapes(recoveries: Iterable[Recovery], world: World | None, uid: int | None) -> Iterator[JobShape]:
    """Jobs with a recovery or a registered checkpoint, newest id first, each made when it is taken: a page needs few. ``uid``: only this
    user's, also of those that had one id."""
    by_job: dict[int, list[Recovery]] = {}
    for recovery in recoveries:
        if uid in (None, recovery.uid):
            by_job.setdefault(recovery.job.job_id, []).append(recovery)
    checkpoints = world.book.checkpoints if world else {}
    jobs = (
        _job(number, by_job.get(number, []), world, uid) for number in sorted({*by_job, *checkpoints}, reverse=True)
    )
    return (j for j in jobs if uid is None or j.uid == uid)


def _checkpoint(number: int, job: Job | None, recoveries: list[Recovery], world: World) -> CheckpointRecord | None:
    """As the decisions see it; of a job that no other source knows, what was claimed last."""
    nodes = {*(job.nodes if job else ()), *(n for r in recoveries for n in r.nodes_before)}
    owner = job.uid if job else next((r.uid for r in recoveries), None)
    if owner is None:
        return told_of(world.book.checkpoints.get(number, {}).values())
    return world.book.checkpoint_of(number, owner, nodes, job.speaks_since if job else None)


def _job(number: int, recoveries: list[Recovery], world: World | None, uid: int | None) -> JobShape:
    job = world.view.jobs.get(number) if world and world.view else None
    job = job if job is None or uid in (None, job.uid) else None
    checkpoint = _checkpoint(number, job, recoveries, world) if world else None
    uids = [job.uid if job else None, checkpoint.uid if checkpoint else None, *(r.uid for r in recoveries)]
    return JobShape(
        job_id=number,
        user=job.user if job else next((r.user for r in recoveries), ""),
        uid=next((u for u in uids if u is not None), -1),
        state=job.state if job else "",
        nodes=list(job.nodes) if job else [],
        checkpoint=CheckpointShape.model_validate(checkpoint) if checkpoint else None,
        recoveries=[RecoveryShape.model_validate(r) for r in recoveries],
    )
