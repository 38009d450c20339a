"""Request to a slow group to leave. Pure. Only if the site allows it, one at a time, and never below the job's minimum size."""

from __future__ import annotations

from holdfast.decisions.common import node_agents, slurm_view
from holdfast.decisions.common.elastic_jobs import ElasticJob, ReplicaGroup, elastic_jobs
from holdfast.decisions.common.may_stop_run import MayStop, SlowGroup, ask_to_leave, may_stop_run
from holdfast.decisions.common.part import Part
from holdfast.decisions.hangs import stragglers
from holdfast.model.actions import steps
from holdfast.model.actions.action import Proposal
from holdfast.model.book import World
from holdfast.model.elastic_jobs.elastic import LeaveReason
from holdfast.model.incidents.incident import Incident


def let_slow_groups_leave(world: World) -> Part:
    view = slurm_view.fresh_view(world)
    if view is None or not world.policy.stragglers.leaves:
        return Part()
    proposals: list[Proposal] = []
    asked: set[int] = set()
    for incident in stragglers.straggling(world):
        for elastic in elastic_jobs(view):
            group = next((g for g in elastic.running if g.job.run == incident.run), None)
            if group is None or elastic.base_array_id in asked:
                continue
            may = may_stop_run(SlowGroup(legal_without=_legal_without(elastic), acknowledged=incident.acknowledged))
            if isinstance(may, MayStop):
                asked.add(elastic.base_array_id)
                proposals += _ask(world, incident, group, may)
    return Part(tuple(proposals))


def _legal_without(elastic: ElasticJob) -> bool:
    """One fewer is a legal size."""
    return elastic.sizes.usable(len(elastic.running) - 1) != 0


def _ask(world: World, incident: Incident, group: ReplicaGroup, may: MayStop) -> list[Proposal]:
    """On each of its nodes: the launcher listens on one or on all of them."""
    proposals: list[Proposal] = []
    for node in group.nodes:
        agent = node_agents.agent_of(world, node)
        step = steps.leave(node, group.job.key, group.job.restarts)
        if agent is None or world.book.attempts(incident.id, step):
            continue
        deadline_s = float(world.policy.elastic.leave_deadline_s)
        args = {
            "job_id": group.job.key.job_id,
            "restarts": group.job.restarts,
            "reason": LeaveReason.DRAIN.value,
            "deadline_s": deadline_s,
        }
        order = ask_to_leave(may, agent, deadline_s, args)
        reason = f"group {group.index} slows the others down: {incident.headline}"
        proposals.append(Proposal(incident.id, step, order, reason, stops_running_job=True, order=30))
    return proposals
