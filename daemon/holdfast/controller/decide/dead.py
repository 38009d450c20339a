"""Whom to ask about a silent node, and what its death leaves behind on the survivors. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.controller import facts, silence
from holdfast.controller.decide.part import Part
from holdfast.model import steps
from holdfast.model.action import CheckInstance, Intent, Proposal, Verb
from holdfast.model.book import World
from holdfast.model.cluster import ClusterView
from holdfast.model.incident import Incident, Recovery, RecoveryPhase

_ORDER_LIFE_S = 10.0
_TASKS_END_S = 5.0
"""So long an agent waits for a survivor's tasks to be gone; Slurm kills them with the DOWN."""
_MANY = 64
"""Nodes of a job above which only those are asked that are COMPLETING still after the grace."""


def ask_witnesses(world: World) -> Part:
    """Probe orders and provider questions for silent nodes, and the end of leftover steps after a DOWN."""
    view = facts.fresh_view(world)
    if view is None:
        return Part()
    proposals: list[Proposal] = []
    silent = silence.silent_nodes(world) if world.book.open_incidents() else ()
    questions = silence.in_question(world, view, silent)
    if questions and silence.freeze_reason(world, silent) is None:
        for incident in questions:
            proposals += _probes(world, view, incident)
    if world.policy.death.end_leftover_steps:
        for recovery in world.book.recoveries.values():
            proposals += _leftovers(world, view, recovery)
    return Part(tuple(proposals))


def _probes(world: World, view: ClusterView, incident: Incident) -> list[Proposal]:
    node = view.nodes[incident.node]
    proposals = []
    for peer in _peers(world, view, incident.node):
        step = steps.probe_peer(peer)
        if not _may_ask(world, world.book.attempts(incident.id, step)):
            continue
        agent = facts.agent_of(world, peer)
        if agent is None:
            continue
        args = {"address": node.address, "port": node.port, "timeout_s": world.policy.death.probe_timeout_s}
        action = facts.order_to(agent, Verb.PROBE_PEER, _ORDER_LIFE_S, args)
        proposals.append(Proposal(incident.id, step, action, f"{incident.node} is silent: can {peer} reach it?"))
    if world.can.status and incident.instance_id:
        step = steps.check_instance(incident.instance_id)
        if _may_ask(world, world.book.attempts(incident.id, step)):
            question = CheckInstance(incident.instance_id, incident.node)
            proposals.append(
                Proposal(incident.id, step, question, f"{incident.node} is silent: how does the provider see it?")
            )
    return proposals


def _may_ask(world: World, attempts: tuple[Intent, ...]) -> bool:
    """A witness is asked again only after a pause; a question on its way is not repeated."""
    latest = facts.last(attempts)
    if latest is None:
        return True
    pause = timedelta(seconds=world.policy.death.reprobe_s)
    return latest.settled and (latest.finished_at is None or world.now - latest.finished_at >= pause)


def _peers(world: World, view: ClusterView, node: str) -> list[str]:
    """Agents to ask: first those that share a job with the silent node, then any, in the order of their names."""
    sharing = {n for job in view.jobs_on(node) for n in job.nodes}
    heard = [n for n in sorted(world.agents) if n != node and n in view.nodes and facts.agent_of(world, n) is not None]
    heard.sort(key=lambda n: (n not in sharing, n))
    return heard[: world.policy.death.peers]


def _leftovers(world: World, view: ClusterView, recovery: Recovery) -> list[Proposal]:
    """After a DOWN a survivor's slurmstepd can wait a minute for the dead node's word; it holds the whole job COMPLETING.

    The order goes out at once: the agent itself waits until the step's tasks are gone and the grace is over."""
    # Restarts grows at the DOWN itself: the recovery is RESTARTING while the old run is still COMPLETING.
    if recovery.phase not in (RecoveryPhase.STOPPING, RecoveryPhase.RESTARTING) or not recovery.via_down:
        return []
    job = view.jobs.get(recovery.job.job_id)
    if job is None or job.state != "COMPLETING":
        return []
    grace_s = world.policy.death.leftover_grace_s
    for incident in world.book.open_incidents():
        down = _down_of(world, incident, recovery)
        if down is None or (len(job.nodes) > _MANY and world.now - down < timedelta(seconds=grace_s)):
            continue
        args = {"job_id": job.key.job_id, "grace_s": grace_s, "wait_s": _TASKS_END_S}
        survivors = [n for n in job.nodes if n != incident.node and n in view.nodes and view.nodes[n].completing]
        reason = (
            f"job {job.key.job_id} is COMPLETING after node {incident.node} was set DOWN; a leftover step may hold it"
        )
        proposals = []
        for name in survivors:
            agent = facts.agent_of(world, name)
            step = steps.end_step(name, job.key, recovery.restarts_before)
            if agent is not None and not world.book.attempts(incident.id, step):
                action = facts.order_to(agent, Verb.END_STEP, _ORDER_LIFE_S, args)
                proposals.append(Proposal(incident.id, step, action, reason))
        return proposals
    return []


def _down_of(world: World, incident: Incident, recovery: Recovery) -> datetime | None:
    """When the dead node of this incident was set DOWN under that run; None: it was not."""
    if not incident.dead or incident.node not in recovery.nodes_before:
        return None
    down = facts.done(world.book.attempts(incident.id, steps.set_down(incident.node)))
    return down.finished_at if down is not None else None
