"""Jobs that Holdfast has held: each is an open incident for as long as it is held. Pure.

It is only watched, and no node is suspected. It ends when the job is released, by its owner or an operator, or is gone; earlier failures no
longer count then (:mod:`.restart_budget`)."""

from __future__ import annotations

from dataclasses import replace

from holdfast.decisions.common import slurm_view
from holdfast.decisions.probing import suspects
from holdfast.model.book import Change, World
from holdfast.model.ids import NewId
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState, Recovery, RecoveryPhase
from holdfast.model.incidents.transitions import Moved, NewIncident, close
from holdfast.model.slurm.cluster import ClusterView, Job, JobRun
from holdfast_checks.result import Remedy, Severity


def follow_held_jobs(world: World, new_id: NewId) -> Change:
    """Open an incident for each job that Slurm shows held for a recovery, close those of jobs that are no longer held."""
    view = slurm_view.fresh_view(world)
    if view is None:
        return Change()
    steps = [_ended(world, view, incident) for incident in held_incidents(world)]
    steps += [_opened(world, job, recovery, new_id) for job, recovery in _new(world, view)]
    done = [step for step in steps if step is not None]
    return Change(
        incidents=tuple(i for i, _ in done),
        recoveries=tuple(_released(world, view)),
        events=tuple(e for _, seen in done for e in seen),
    )


def held_incidents(world: World) -> list[Incident]:
    """The open ones."""
    watching = IncidentState.WATCHING
    return [i for i in world.book.open_incidents() if i.kind is IncidentKind.HELD_JOB and i.state is watching]


def _new(world: World, view: ClusterView) -> list[tuple[Job, Recovery]]:
    known = {i.run for i in world.book.incidents.values() if i.kind is IncidentKind.HELD_JOB}
    found = []
    for recovery in sorted(world.book.recoveries.values(), key=lambda r: r.id):
        job = view.jobs.get(recovery.job.job_id)
        if recovery.phase is not RecoveryPhase.HELD or recovery.run in known or job is None:
            continue
        if job.state == "PENDING" and job.held and job.uid == recovery.uid and job.continues(recovery.job):
            found.append((job, recovery))
    return found


def _opened(world: World, job: Job, recovery: Recovery, new_id: NewId) -> Moved:
    check, nodes = suspects.CHECKS[IncidentKind.HELD_JOB], recovery.nodes_before
    new = NewIncident(
        id=new_id(world.now),
        kind=IncidentKind.HELD_JOB,
        node=min(nodes),
        severity=Severity.WARNING,
        remedy=Remedy.NONE,
        check=check,
        headline=f"{check}: job {job.key.job_id} of {job.user} on {len(nodes)} node{'s' * (len(nodes) > 1)} is held",
        fault_at=world.now,
        job=recovery.run.text,
        job_uid=job.uid,
        note=recovery.note,
    )
    return suspects.open_about_job(world, new, job.key.text)


def _ended(world: World, view: ClusterView, incident: Incident) -> Moved | None:
    run = incident.run
    job = view.jobs.get(run.job_id) if run is not None else None
    if run is None or job is None or job.uid != incident.job_uid or not _goes_on(job, run):
        return close(incident, world.now, "Slurm no longer knows the job")
    if job.state in slurm_view.ENDED | slurm_view.FAILED:  # Slurm shows such a job with the reason that it waited for
        return close(incident, world.now, f"the job is over: {job.state}")
    if job.held:
        return None
    return close(incident, world.now, "the job was released: its failures count from zero again")


def _released(world: World, view: ClusterView) -> list[Recovery]:
    """Recoveries whose held job runs again: what happened before no longer counts for any job of its program."""
    known = {i.run for i in world.book.incidents.values() if i.kind is IncidentKind.HELD_JOB}
    found = []
    for recovery in world.book.recoveries.values():
        job = view.jobs.get(recovery.job.job_id)
        if recovery.phase is not RecoveryPhase.HELD or recovery.released_at is not None or recovery.run not in known:
            continue
        if job is None or job.uid != recovery.uid or not _goes_on(job, recovery.run):
            continue
        if not job.held and job.state not in slurm_view.ENDED | slurm_view.FAILED:
            found.append(replace(recovery, released_at=world.now))
    return found


def _goes_on(job: Job, run: JobRun) -> bool:
    return job.key.submitted_s == run.submitted_s or job.continues(run.key)
