"""Steps before a capacity block or reservation ends. Pure.

A capacity block or a reservation ends with all of its machines: a new one there would end, too, so nothing is drained, stopped or replaced.
The jobs are asked to save in time; their owners and an operator are notified."""

from __future__ import annotations

from datetime import timedelta

from holdfast.decisions.common import job_checkpoints, node_agents, slurm_view
from holdfast.decisions.common.owner_words import fault_of
from holdfast.decisions.common.part import Part
from holdfast.decisions.planned import notices, saving
from holdfast.model.actions import steps
from holdfast.model.actions.action import Notify, Proposal, SendOrder, TellOwner
from holdfast.model.actions.steps import Step
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.machine import NoticeKind
from holdfast.model.notice import NoticeLevel, Topic
from holdfast.model.slurm.cluster import ClusterView, Job


def warn_of_ends(world: World) -> Part:
    view = slurm_view.fresh_view(world)
    if view is None:
        return Part()
    proposals: list[Proposal] = []
    for incident in world.book.open_incidents():
        if (
            notices.kind_of(incident) is NoticeKind.CAPACITY_END
            and incident.state is IncidentState.WATCHING
            and not incident.acknowledged
        ):
            proposals += _warn(world, view, incident)
    return Part(tuple(proposals))


def _warn(world: World, view: ClusterView, incident: Incident) -> list[Proposal]:
    if incident.goes_at is None or incident.goes_at - world.now > timedelta(seconds=_longest_s(world)):
        return []
    proposals: list[Proposal] = []
    for job in view.jobs_on(incident.node):
        if job.state == "RUNNING" and incident.goes_at - world.now <= timedelta(seconds=_before_s(world, job)):
            proposals += [*_ask(world, incident, job), *_tell(world, incident, job)]
    if incident.goes_at - world.now <= timedelta(seconds=world.policy.planned.capacity_save_s):
        body = f"{incident.headline}\nIts jobs were asked to save; nothing is replaced, as it would end, too."
        notify = Notify(
            f"{incident.node}: its capacity ends at {incident.goes_at:%Y-%m-%d %H:%M} UTC",
            body,
            NoticeLevel.NEEDS_SOMEBODY,
            Topic.CAPACITY_ENDS,
        )
        proposals += _once(world, incident, steps.notify_capacity_end(), notify, incident.headline)
    return proposals


def _longest_s(world: World) -> float:
    """No job has said that it takes longer to save."""
    told = (r.save_s or 0.0 for claims in world.book.checkpoints.values() for r in claims.values())
    return max(world.policy.planned.capacity_save_s, max(told, default=0.0) + world.policy.planned.margin_s)


def _before_s(world: World, job: Job) -> float:
    """Time before the end at which the job is asked to save: earlier if the job reported that it takes longer."""
    mine = job_checkpoints.checkpoint_of(world, job)
    own_s = mine.save_s + world.policy.planned.margin_s if mine is not None and mine.save_s is not None else 0.0
    return max(world.policy.planned.capacity_save_s, own_s)


def _ask(world: World, incident: Incident, job: Job) -> list[Proposal]:
    """Ask on this node only: the job's other nodes have their own notices."""
    mine = job_checkpoints.checkpoint_of(world, job)
    agent = node_agents.agent_of(world, incident.node, incident.instance_id)
    if mine is None or mine.save_signal is None or agent is None:
        return []
    proposals: list[Proposal] = []
    for part in job.components:
        if incident.node in part.nodes:
            order = saving.order(agent, part, mine.save_signal)
            step = steps.save(incident.node, part.key, job.restarts)
            proposals += _once(world, incident, step, order, "its capacity ends: the job is asked to save")
    return proposals


def _tell(world: World, incident: Incident, job: Job) -> list[Proposal]:
    text = f"node {incident.node} will go ({fault_of(incident)}); nothing takes its place"
    step = steps.tell_owner(job.key, job.restarts)
    return _once(world, incident, step, TellOwner(job.key, f"holdfast[{incident.id}]: {text}"), text)


def _once(
    world: World, incident: Incident, step: Step, action: Notify | TellOwner | SendOrder, why: str
) -> list[Proposal]:
    if world.book.attempts(incident.id, step, action.target.job):
        return []
    return [Proposal(incident.id, step, action, why, order=90)]
