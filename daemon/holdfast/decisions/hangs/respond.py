"""Steps for a hung job: stacks, notification, restart. Pure.

The stacks of its ranks are read on all of its nodes, once. An operator is notified of a job that Holdfast leaves as it is. :mod:`recover`
decides which job is requeued and how; a suspect node that the probe found good returns to the pool that its replacement came from."""

from __future__ import annotations

from datetime import timedelta

from holdfast.decisions.common import node_agents, slurm_view
from holdfast.decisions.common.consent import consent
from holdfast.decisions.common.part import Part
from holdfast.decisions.hangs import detect, shared_stalls
from holdfast.decisions.hangs.progress_stall import words_of
from holdfast.decisions.probing import suspects
from holdfast.model.actions import steps
from holdfast.model.actions.action import AdoptSpare, Notify, Proposal, Verb
from holdfast.model.book import World
from holdfast.model.ids import UPKEEP
from holdfast.model.incidents.incident import Incident
from holdfast.model.jobs.opt_in import why_not
from holdfast.model.notice import NoticeLevel, Topic
from holdfast.model.policies.lookback import GIVE_BACK_S
from holdfast.model.slurm.cluster import ClusterView, Job
from holdfast_checks.result import Severity

_MOST_JOBS = 40
"""Jobs that a page names."""
_DEADLINE_S = 5.0
"""For one process; the agent reads several at a time."""


def look_into_hangs(world: World) -> Part:
    view = slurm_view.fresh_view(world)
    if view is None:
        return Part()
    proposals: list[Proposal] = []
    for incident in detect.hung_incidents(world):
        job = suspects.job_of(view, incident)
        if job is None or incident.acknowledged:
            continue
        if incident.odd is None:
            proposals += _ask(world, incident, job)
        elif (why := _why_left(world, view, job)) is not None and not detect.undecided(world, view, incident, job):
            proposals += _tell(world, incident, why)
    for stall in shared_stalls.stalls(world):
        if not stall.acknowledged:
            proposals += _tell_of_stall(world, view, stall)
    return Part((*proposals, *_give_back(world, view)))


def _ask(world: World, incident: Incident, job: Job) -> list[Proposal]:
    """On every node of it that has an agent; of a heterogeneous job by the component's own id."""
    proposals: list[Proposal] = []
    for part in job.components:
        for node in part.nodes:
            agent = node_agents.agent_of(world, node)
            step = steps.collect_stacks(node, part.key, job.restarts)
            if agent is None or world.book.attempts(incident.id, step):
                continue
            args = {"job_id": part.key.job_id, "deadline_s": _DEADLINE_S}
            order = node_agents.order_to(agent, Verb.STACKS, world.policy.hangs.stacks_s, args)
            proposals.append(
                Proposal(incident.id, step, order, f"{incident.headline}: collect the stacks of its ranks", order=15)
            )
    return proposals


def _why_left(world: World, view: ClusterView, job: Job) -> str | None:
    """Reason why Holdfast does not restart the job; None: it does."""
    if not words_of(world, job):
        return "it has never reported progress, and a silent fabric alone is no reason to restart a job: it is left running"
    begun = world.book.recovery_of(job.key, job.restarts)
    if begun is not None and not begun.final:
        return None
    if not detect.restarted_by_policy(world, view, job):
        return f"hangs.act is {world.policy.hangs.act}: it is left running"
    if consent(world, job) is None:
        return f"the job did not opt in{why_not(job.comment)}: it is left running"
    return None


def _tell(world: World, incident: Incident, why: str) -> list[Proposal]:
    step = steps.notify_hang()
    if not world.may_try(incident.id, step) or _told_of_the_run(world, incident):
        return []
    nodes = ",".join(incident.odd or incident.suspects)
    body = f"{incident.headline}\n{incident.note}\n{why}\nnodes to check: {nodes}"
    return [
        Proposal(
            incident.id,
            step,
            Notify(incident.headline, body, NoticeLevel.NEEDS_SOMEBODY, Topic.JOB_HANGS, incident.suspects),
            why,
            order=90,
        )
    ]


def _tell_of_stall(world: World, view: ClusterView, incident: Incident) -> list[Proposal]:
    """Once, of all jobs that have stopped by then; those that stop later are in the incident."""
    step = steps.notify_hang()
    if not world.may_try(incident.id, step):
        return []
    jobs = [f"  job {j.key.job_id} of {j.user} on {','.join(j.nodes)}" for j in shared_stalls.jobs_of(view, incident)]
    more = [f"  and {len(jobs) - _MOST_JOBS} more"] * (len(jobs) > _MOST_JOBS)
    why = "what they share has stopped them, most likely a file system: none is restarted, and no node is accused"
    look = "Check the file systems that they use (df, the server, lfs check servers), then the network."
    body = "\n".join([incident.headline, *jobs[:_MOST_JOBS], *more, why, look])
    return [
        Proposal(
            incident.id,
            step,
            Notify(incident.headline, body, NoticeLevel.NEEDS_SOMEBODY, Topic.JOB_STALL),
            why,
            order=90,
        )
    ]


def _told_of_the_run(world: World, incident: Incident) -> bool:
    """For another incident of the same run, within the last hour: a run that pauses again and again pages no one each time."""
    others = (i for i in world.book.incidents.values() if i.run == incident.run and i.id != incident.id)
    return any(world.book.attempts(i.id, steps.notify_hang()) for i in others)


def _give_back(world: World, view: ClusterView) -> list[Proposal]:
    """Move a suspect node to the spare pool if a spare replaced it and the probe found nothing wrong with it."""
    since = world.now - timedelta(seconds=GIVE_BACK_S)
    taken = {r.incident_id for r in world.book.recoveries.values() if r.spare is not None}
    proposals: list[Proposal] = []
    for incident in world.book.incidents.values():
        if not incident.odd or incident.id not in taken or incident.closed_at is None or incident.closed_at < since:
            continue
        for node in incident.odd:
            step = steps.adopt_cleared_node(node, incident.id)  # not the incident's own: that one is closed
            if not world.policy.repair.return_as_spare or not _free(world, view, node):
                continue
            if world.may_try(UPKEEP, step):
                reason = f"{node} was an outlier when a job hung and has passed its probe; a spare has replaced it"
                proposals.append(Proposal(UPKEEP, step, AdoptSpare(node), reason, order=95))
    return proposals


def _free(world: World, view: ClusterView, node: str) -> bool:
    """Whether the node is in service, not held, and without an open incident."""
    shown = view.nodes.get(node)
    if shown is None or shown.out_of_service or not slurm_view.free_of_jobs(view, node):
        return False
    reserved = any(node in r.nodes for r in view.reservations.values())
    return not reserved and not any(i.severity is not Severity.WARNING for i in world.book.open_on(node))
