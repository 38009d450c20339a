"""Affected jobs of a fault, and what may be done to them. Pure."""

from __future__ import annotations

from holdfast.decisions.common import gpu_link, node_incidents, slurm_view
from holdfast.decisions.common.consent import consent
from holdfast.decisions.common.owner_words import fault_of
from holdfast.decisions.job_ends import attribution, dependents, run_ends
from holdfast.decisions.machines import replacement, serving_now
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState, RecoveryPhase
from holdfast.model.slurm.cluster import ClusterView, Job
from holdfast_checks.result import Remedy


def hurt_jobs(world: World, view: ClusterView, incident: Incident) -> list[Job]:
    """Jobs that hold the faulty part, and jobs that failed because of it (:mod:`holdfast.decisions.job_ends.attribution`). A machine that
    is validated while it serves is no longer at fault: its job was there while the node was only silent, or started there since. Nor is one
    that was rebooted since, with all checks passing: jobs there started after the fault."""
    proving = incident.state is IncidentState.VALIDATING and replacement.new_instance(world, incident) is None
    history = not incident.dead and serving_now.nothing_holds(world, incident, events_too=True)
    running = () if proving or history else (j for j in view.jobs_on(incident.node) if j.state != "COMPLETING")
    hurt = [j for j in running if gpu_link.hits(world, incident, j)]
    failed = view.failed_on(incident.node)
    return [*hurt, *(j for j in failed if _stops(world, incident, j) or failed_of_it(world, incident, j))]


def _stops(world: World, incident: Incident, job: Job) -> bool:
    """It was being stopped for this fault, and failed before Slurm had queued it again."""
    known = world.book.recovery_of(job.key, job.restarts)
    return known is not None and known.incident_id == incident.id and known.phase is RecoveryPhase.STOPPING


def failed_of_it(world: World, incident: Incident, job: Job) -> bool:
    """Whether the failed job counts as a victim of the fault."""
    end = run_ends.end_of(world, job)
    return end is not None and attribution.ended_by(world, incident, job, end)


def unproven_jobs(world: World, view: ClusterView, incident: Incident) -> list[Job]:
    """Jobs on the node that hold GPUs there, and nothing proves which, though the proof has had its time: they run on."""
    if not gpu_link.proof_overdue(world, incident):
        return []
    running = (j for j in view.jobs_on(incident.node) if j.state == "RUNNING")
    return [j for j in running if gpu_link.link(world, incident, j) is gpu_link.GpuLink.UNPROVEN]


def calls_for_a_restart(world: World, incident: Incident) -> bool:
    """The lowest rung: what is wrong ends with the job (a contained memory error), so the job starts again in place."""
    watched = incident.state is IncidentState.WATCHING and not incident.acknowledged
    return watched and incident.remedy is Remedy.RESTART_JOB and world.policy.job.restart_in_place


def convicted(incident: Incident) -> bool:
    """Pair probes have found the node at fault that a failed job had no finding on (:mod:`holdfast.decisions.probing.suspects`): the job is
    recovered off it."""
    return node_incidents.acting(incident) and incident.kind is IncidentKind.PAIR


def failed_jobs(world: World, view: ClusterView, incident: Incident) -> list[Job]:
    """Jobs that opted in and have failed because of it on their own; no other user's jobs, and none that still runs."""
    return [
        j for j in hurt_jobs(world, view, incident) if j.state in slurm_view.FAILED and consent(world, j) is not None
    ]


def left_alone(view: ClusterView, incident: Incident, job: Job) -> str | None:
    """Reason why the job is not recovered at all; None: it may be."""
    if not job.requeueable:
        return "it cannot be requeued (salloc, srun, or --no-requeue)"
    if job.het_leader is not None and not job.parts:
        return "it is part of a heterogeneous job whose leader Slurm no longer knows"
    if job.unreadable:
        return (
            f"Holdfast cannot read which nodes its user requires or excludes ({job.unreadable}), and will not restart it on one that "
            "it may not have. To fix this: scontrol update with node names such as n1,n2"
        )
    if incident.node in job.required_nodes:
        return f"it requires node {incident.node} by name, which has a fault ({fault_of(incident)})"
    other = dependents.gone_on(view, job) if job.state in slurm_view.FAILED else None
    return _beside(incident, job, other) if other is not None else None


def _beside(incident: Incident, job: Job, other: Job) -> str:
    """Reason why a failed job is not restarted: another one depends on its end; and what its owner can do."""
    failed = f"the job failed on node {incident.node}, which had a fault ({fault_of(incident)})"
    if other.state == "PENDING" and dependents.latched_for(other.dependency or "", other, job):
        return (
            f"{failed}; job {other.shown_id} waits for array {job.array_job_id}, which Slurm now counts as failed for good: afterok and "
            "aftercorr are never met, afternotok is met even if all end well. To start the job again: first scontrol hold, scancel or "
            "change the dependency of what waits "
            f"(scontrol update jobid={other.key.job_id} Dependency=afterok:{job.shown_id} waits for this job alone), "
            f"then: scontrol requeue {job.shown_id}"
        )
    what = "was cancelled" if other.state == "CANCELLED" else "has started, or may"
    return (
        f"{failed}; job {other.key.job_id}, which depends on its end or may, {what}: both would run at the same time. "
        f"If that does no harm: scontrol requeue {job.shown_id}"
    )


def own_exclusions(world: World, job: Job) -> tuple[str, ...]:
    """The user's own exclusions: without what Holdfast added for an earlier run (a running job's list cannot be changed)."""
    added = added_before(world, job)
    return tuple(n for n in job.excluded_nodes if n not in added)


def added_before(world: World, job: Job) -> tuple[str, ...]:
    """Nodes that Holdfast excluded for earlier runs of the job."""
    earlier = [
        r
        for r in world.book.recoveries.values()
        if r.uid == job.uid and job.continues(r.job) and r.restarts_before < job.restarts
    ]
    return max(earlier, key=lambda r: r.restarts_before).excluded_added if earlier else ()
