"""Which jobs does a fault hurt, and what may be done to them? Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.controller import facts, gpu_link, notices
from holdfast.controller.consent import consent
from holdfast.model.book import World
from holdfast.model.cluster import ClusterView, Job
from holdfast.model.incident import Incident, IncidentKind, IncidentState
from holdfast_checks.result import Remedy

_EARLY = timedelta(seconds=10)
"""A machine may go so much before its time (two clocks)."""


def hurt_jobs(world: World, view: ClusterView, incident: Incident) -> list[Job]:
    """Jobs that hold what is at fault, and jobs that failed on it around the time of the fault."""
    running = (j for j in view.jobs_on(incident.node) if j.state != "COMPLETING")
    hurt = [j for j in running if gpu_link.hits(world, incident, j)]
    for _, job in sorted(view.jobs.items()):
        if job.state not in facts.FAILED or incident.node not in job.nodes or job.end_time is None:
            continue
        # A job that runs on without consent is the fault's victim however long after it fails.
        known = world.book.recovery_of(job.key, job.restarts)
        told = known is not None and known.incident_id == incident.id
        soon = _around(world, incident, job.end_time)
        if told or (soon and gpu_link.may_have_hit(world, incident, job)):
            hurt.append(job)
    return hurt


def unproven_jobs(world: World, view: ClusterView, incident: Incident) -> list[Job]:
    """Jobs on the node that hold GPUs there, and nothing proves which: they run on."""
    running = (j for j in view.jobs_on(incident.node) if j.state == "RUNNING")
    return [j for j in running if gpu_link.link(world, incident, j) is gpu_link.Link.UNPROVEN]


def calls_for_a_restart(world: World, incident: Incident) -> bool:
    """The lowest rung: what is wrong ends with the job (a contained memory error), so the job starts again in place."""
    watched = incident.state is IncidentState.WATCHING and not incident.acknowledged
    return watched and incident.remedy is Remedy.RESTART_JOB and world.policy.job.restart_in_place


def convicted(incident: Incident) -> bool:
    """Pair probes have found the node at fault that a failed job had no finding on (:mod:`holdfast.controller.suspects`): the job is
    recovered off it."""
    return facts.acting(incident) and incident.kind is IncidentKind.PAIR


def failed_jobs(world: World, view: ClusterView, incident: Incident) -> list[Job]:
    """Jobs that opted in and have failed of it by themselves; nobody else's, and none that still runs."""
    return [j for j in hurt_jobs(world, view, incident) if j.state in facts.FAILED and consent(world, j) is not None]


def _around(world: World, incident: Incident, ended: datetime) -> bool:
    """Whether the fault may have ended a job at that time; of a machine that goes only its going may."""
    before = timedelta(seconds=world.policy.job.attribution_before_s)
    after = timedelta(seconds=world.policy.job.attribution_after_s)
    if incident.goes_at is not None and notices.planned(world, incident):
        return incident.goes_at - _EARLY <= ended <= incident.goes_at + before
    return incident.fault_at - after <= ended <= incident.fault_at + before


def left_alone(incident: Incident, job: Job) -> str | None:
    """Why the job is not recovered at all; None: it may be."""
    if not job.requeueable:
        return "it cannot be requeued (salloc, srun, or --no-requeue)"
    if job.het_leader is not None and not job.parts:
        return "it is part of a heterogeneous job whose leader Slurm no longer knows"
    if incident.node in job.required_nodes:
        return f"it requires node {incident.node} by name, which has a fault ({incident.headline})"
    return None


def own_exclusions(world: World, job: Job) -> tuple[str, ...]:
    """The user's own exclusions: without what Holdfast added for an earlier run (a running job's list cannot be changed)."""
    earlier = [
        r
        for r in world.book.recoveries.values()
        if (r.job.cluster, r.job.job_id, r.uid) == (job.key.cluster, job.key.job_id, job.uid)
        and r.restarts_before < job.restarts
    ]
    added = max(earlier, key=lambda r: r.restarts_before).excluded_added if earlier else ()
    return tuple(n for n in job.excluded_nodes if n not in added)
