"""Fencing: whether the old run of a job on a dead node is prevented from writing. Pure.

A node that cannot be reached may still be training. Before the job writes elsewhere, the old run is fenced: the power is confirmed
off, or the job's checkpoint library refuses the writes of an older run."""

from __future__ import annotations

from holdfast.decisions.common import attempted_steps, consent, job_checkpoints, slurm_view
from holdfast.decisions.common.may_stop_run import MayNotStop, RunOnDeadNode, StopRefusal, may_stop_run
from holdfast.decisions.death import evidence
from holdfast.model.actions import steps
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident
from holdfast.model.slurm.cluster import ClusterView, Job


def unfenced_jobs(world: World, view: ClusterView, incident: Incident) -> tuple[int, ...]:
    """Jobs on a dead node whose old run could still write somewhere: neither is the power off, nor does their checkpoint library
    refuse an older run's writes."""
    if powered_off(world, incident):
        return ()
    return tuple(job.key.job_id for job in view.jobs_on(incident.node) if not _fenced_by_itself(world, job))


def _fenced_by_itself(world: World, job: Job) -> bool:
    record = job_checkpoints.checkpoint_of(world, job)
    return record is not None and record.fenced


def powered_off(world: World, incident: Incident) -> bool:
    """The provider shows the incident's machine off, or has confirmed that it is terminated."""
    done = attempted_steps.done(world.book.attempts(incident.id, steps.terminate(incident.instance_id)))
    ended = done is not None and done.result.get("state") == "terminated"
    return ended or evidence.power_off(world, incident) is not None


def run_on(world: World, view: ClusterView, incident: Incident, job: Job) -> RunOnDeadNode:
    """What decides whether the dead node of this incident may be set DOWN under this job."""
    return RunOnDeadNode(
        completing=job.state == "COMPLETING",
        consents=consent.consent(world, job) is not None,
        never_ended_by_slurm=_slurm_never_would(world, incident),
        unfenced=job.key.job_id in unfenced_jobs(world, view, incident),
    )


def keeps_waiting(world: World, view: ClusterView, incident: Incident, job: Job) -> StopRefusal | None:
    """Reason why the dead node of this incident may not be set DOWN under this job now (``NO_CONSENT``: Slurm ends its run at
    SlurmdTimeout, as without Holdfast; ``UNFENCED``); None: it may."""
    answer = may_stop_run(run_on(world, view, incident, job))
    return answer.kind if isinstance(answer, MayNotStop) else None


def holds_up(world: World, view: ClusterView, incident: Incident, job: Job) -> str | None:
    """Reason why this job keeps the dead node from being set DOWN under another, for the other's owner; None: it does not."""
    match keeps_waiting(world, view, incident, job):
        case None:
            return None
        case StopRefusal.UNFENCED:
            return f"job {job.shown_id} is there as well, and its old run could still write until the node is confirmed off"
        case _:
            return f"job {job.shown_id} is there as well, and did not opt in: Slurm ends its run at SlurmdTimeout"


def _slurm_never_would(world: World, incident: Incident) -> bool:
    """SlurmdTimeout is 0, and the node has been silent for as long as Slurm ships it: Slurm itself would never end the run."""
    never = world.background.slurmd_timeout_s == 0
    return never and evidence.silent_s(world, incident) >= slurm_view.SLURMD_TIMEOUT_S
