"""Jobs stuck in COMPLETING on a faulty node (tasks stuck in the driver, an epilog that never ends). Pure.

First an order to the node's own agent, which ends what the job still has there and leaves the node's other jobs alone. A DOWN, which frees
it too, is the last resort: it needs a node that no other job uses, and on Slurm 22.05 it breaks the job's next run."""

from __future__ import annotations

from datetime import datetime

from holdfast.decisions.common import attempted_steps, node_agents, node_drains, node_incidents
from holdfast.decisions.common.may_stop_run import (
    LeftoverTasks,
    MayNotStop,
    MayStop,
    StuckNode,
    end_leftovers,
    may_stop_run,
    set_down,
)
from holdfast.model.actions import steps
from holdfast.model.actions.action import Intent, IntentState, Proposal
from holdfast.model.actions.steps import Step
from holdfast.model.agents.report import AgentView
from holdfast.model.book import World
from holdfast.model.ids import slurm_reason
from holdfast.model.incidents.incident import Incident, IncidentState, Recovery, RecoveryPhase
from holdfast.model.slurm.cluster import ClusterView

_ORDER_LIFE_S = 30.0
"""Longer than the agent needs (``agent/orders/stuck_job.py``): the epilog's grace, and as long as slurmd may take to notice."""
_EPILOG_GRACE_S = 5.0
"""Time for an epilog that starts only when the tasks have been ended, on a node that goes out of service anyway."""
_WAITS = frozenset({"COMPLETING", "PENDING", "REQUEUED"})
"""State of a job that was requeued and is not released."""


def stuck(world: World, view: ClusterView) -> list[Proposal]:
    """An order, or a DOWN if the order did not help or there is no agent to take it."""
    proposals = []
    for recovery in sorted(world.book.recoveries.values(), key=lambda r: r.id):
        incident = world.book.incidents.get(recovery.incident_id)
        if incident is None or not node_incidents.acting(incident) or not _held(world, view, recovery, incident):
            continue
        # An order that no agent fetched counts too: the job holds its nodes meanwhile.
        orders = world.book.planned(incident.id, _order_step(recovery, incident))
        order = attempted_steps.last(tuple(i for i in orders if i.planned_at >= recovery.created_at))
        if order is None and (proposal := _order(world, view, recovery, incident)) is not None:
            proposals.append(proposal)
            continue
        facts = StuckNode(order_in_vain=_in_vain(world, incident, order), alone=_alone(view, recovery, incident))
        may = may_stop_run(facts)
        if isinstance(may, MayStop):
            proposals += _down(world, view, recovery, incident, may)
    return proposals


def _held(world: World, view: ClusterView, recovery: Recovery, incident: Incident) -> bool:
    """The job was requeued, its grace is over, and its faulty node is still COMPLETING."""
    if recovery.phase not in (RecoveryPhase.STOPPING, RecoveryPhase.RESTARTING) or incident.state is IncidentState.OPEN:
        return False
    since = _requeued_at(world, recovery)
    node, job = view.nodes.get(incident.node), view.jobs.get(recovery.job.job_id)
    if since is None or node is None or job is None or not _grace_over(world, since):
        return False
    here = incident.node in job.nodes or job.state != "COMPLETING"
    return job.state in _WAITS and here and node.completing and incident.node in recovery.nodes_before and not node.down


def _requeued_at(world: World, recovery: Recovery) -> datetime | None:
    step = steps.requeue(recovery.job, recovery.restarts_before)
    attempts = world.book.attempts(recovery.incident_id, step, recovery.job)
    ordered = attempted_steps.done(attempts) or attempted_steps.last(
        attempts
    )  # a crash may have left a requeue that Slurm took unrecorded
    if ordered is None or (ordered.state is not IntentState.DONE and not ordered.retryable):
        return None
    return ordered.finished_at


def _grace_over(world: World, since: datetime) -> bool:
    return (world.now - since).total_seconds() > world.policy.job.stuck_completing_s


def _order_step(recovery: Recovery, incident: Incident) -> Step:
    return steps.end_job(incident.node, recovery.job, recovery.restarts_before)


def _order(world: World, view: ClusterView, recovery: Recovery, incident: Incident) -> Proposal | None:
    """The order, if the serving machine's agent reports and the drain is Holdfast's."""
    agent = _agent(world, incident)
    ours = node_drains.drained_by_us(world, view.nodes[incident.node])
    may = may_stop_run(LeftoverTasks(agent=agent is not None, drained_by_us=ours))
    if agent is None or isinstance(may, MayNotStop):
        return None
    args = {
        "job_id": recovery.job.job_id,
        "restarts": recovery.restarts_before,
        "grace_s": min(world.policy.job.stuck_completing_s, _EPILOG_GRACE_S),
    }
    action = end_leftovers(may, agent, _ORDER_LIFE_S, args)
    reason = f"{incident.node} still holds job {recovery.job}, COMPLETING past the grace"
    return Proposal(incident.id, _order_step(recovery, incident), action, reason)


def _agent(world: World, incident: Incident) -> AgentView | None:
    """The faulty machine's own: its replacement may speak under the node's name already."""
    return node_agents.agent_of(world, incident.node, incident.instance_id or None)


def _in_vain(world: World, incident: Incident, order: Intent | None) -> bool:
    """Whether there is no agent to take the order, or it did not free the job: it failed, or a second grace is over as well."""
    if order is None or order.state is IntentState.FAILED:
        return True
    if not order.settled:
        return _agent(world, incident) is None
    return order.finished_at is not None and _grace_over(world, order.finished_at)


def _alone(view: ClusterView, recovery: Recovery, incident: Incident) -> bool:
    """Whether only the faulty node holds the job, and no other job there would be stopped by a DOWN."""
    completing = {n for n in recovery.nodes_before if n in view.nodes and view.nodes[n].completing}
    return completing == {incident.node} and all(j.state == "COMPLETING" for j in view.jobs_on(incident.node))


def _down(world: World, view: ClusterView, recovery: Recovery, incident: Incident, may: MayStop) -> list[Proposal]:
    step = steps.set_down(incident.node)
    if not world.may_try(incident.id, step):
        return []
    reason = f"only {incident.node} still holds job {recovery.job}, COMPLETING past the grace"
    jobs = tuple(j.key.job_id for j in view.jobs_on(incident.node))
    text = slurm_reason(incident.id, f"{incident.headline}; tasks stuck")
    action = set_down(may, incident.node, text, jobs, node_dead=incident.dead)
    return [Proposal(incident.id, step, action, reason, order=50)]
