"""Follow-up of recoveries and incidents by what Slurm, agents and jobs show, with the events that timings are computed from. Pure.

Nothing is ordered here; a phase moves only on what Slurm, an agent or the job itself has shown."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.decisions.common import gpu_link, job_checkpoints, node_incidents, slurm_view
from holdfast.decisions.job_ends import run_ends
from holdfast.decisions.planned import notices
from holdfast.decisions.recovery import affected_jobs, owner_note, run_checkpoints, waiting
from holdfast.model.actions import steps
from holdfast.model.actions.action import IntentState
from holdfast.model.book import Change, CheckpointRecord, World
from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import Recovery, RecoveryPhase
from holdfast.model.slurm.cluster import ClusterView, Job

_ORDERED = frozenset(
    {RecoveryPhase.SAVING, RecoveryPhase.STOPPING, RecoveryPhase.WAITING, RecoveryPhase.AWAITING_CONSENT}
)
_MAY_FAIL = _ORDERED - {RecoveryPhase.STOPPING}
"""Phases in which nothing was done to the run yet."""
_REQUEUED = "REQUEUED"


def follow_jobs(world: World) -> Change:
    """Move every recovery that is not final to where its job is now."""
    view = slurm_view.fresh_view(world)
    if view is None:
        return Change()
    recoveries: list[Recovery] = []
    events: list[Event] = []
    for recovery in sorted(world.book.recoveries.values(), key=lambda r: r.id):
        if recovery.final:
            continue
        after, seen = _follow(world, view, recovery)
        if after != recovery:
            recoveries.append(after)
        if after.phase is not recovery.phase:
            events += [*seen, _phase_event(world, recovery, after)]
    return Change(recoveries=tuple(recoveries), events=tuple(events))


def _follow(world: World, view: ClusterView, recovery: Recovery) -> tuple[Recovery, list[Event]]:
    job = view.jobs.get(recovery.job.job_id)
    if job is None or not job.continues(recovery.job) or job.uid != recovery.uid:
        return replace(recovery, phase=RecoveryPhase.GONE, note="Slurm no longer knows the job"), []
    if recovery.phase not in (RecoveryPhase.HELD, RecoveryPhase.LEFT_ALONE):
        recovery = run_checkpoints.learn(world, recovery, job)
    if job.restarts > recovery.restarts_before + 1 and recovery.phase is not RecoveryPhase.STOPPING:
        return _next_run_started(recovery, job)
    if job.restarts > recovery.restarts_before:
        return _after_the_stop(world, recovery, job)
    if job.state in slurm_view.ENDED:
        return replace(recovery, phase=RecoveryPhase.GONE, note=f"the job has already ended: {job.state}"), []
    if recovery.phase in _MAY_FAIL and _failed_otherwise(world, recovery, job):
        note = "the job failed, and nothing shows that this fault was the cause (holdfast why)"
        return replace(recovery, phase=RecoveryPhase.GONE, note=note), []
    if recovery.phase in _ORDERED and not _cause_acts(world, recovery) and not _stop_ordered(world, recovery):
        return replace(
            recovery, phase=RecoveryPhase.GONE, note="its incident is over or an operator's: left as it is"
        ), []
    if recovery.phase in _ORDERED and not _stop_ordered(world, recovery) and _proved_innocent(world, recovery, job):
        return replace(recovery, phase=RecoveryPhase.GONE, consent="", ground=None, note=owner_note.INNOCENT), []
    if recovery.phase is RecoveryPhase.SAVING and _cause_is_gone(world, recovery):
        return replace(
            recovery, phase=RecoveryPhase.GONE, note="the provider took its notice back: the job runs on"
        ), []
    return recovery, []


def _failed_otherwise(world: World, recovery: Recovery, job: Job) -> bool:
    """Whether it failed, its output was read if possible, and this fault does not count as the cause."""
    incident = world.book.incidents.get(recovery.incident_id)
    over = job.state in slurm_view.FAILED and incident is not None and not run_ends.undecided(world, job)
    return over and incident is not None and not affected_jobs.failed_of_it(world, incident, job)


def _proved_innocent(world: World, recovery: Recovery, job: Job) -> bool:
    """A proof that came late shows that the job holds none of the GPUs at fault."""
    incident = world.book.incidents.get(recovery.incident_id)
    if incident is None or incident.node not in job.nodes:
        return False
    return not gpu_link.may_have_hit(world, incident, job)


def _cause_is_gone(world: World, recovery: Recovery) -> bool:
    incident = world.book.incidents.get(recovery.incident_id)
    return incident is not None and notices.withdrawn(world, incident)


def _cause_acts(world: World, recovery: Recovery) -> bool:
    incident = world.book.incidents.get(recovery.incident_id)
    if incident is None or not incident.open:
        return False
    hangs = incident.hangs and not incident.acknowledged
    return node_incidents.acting(incident) or hangs or affected_jobs.calls_for_a_restart(world, incident)


def _stop_ordered(world: World, recovery: Recovery) -> bool:
    """Whether the stop is in flight, or done and not shown by Slurm yet."""
    incident = world.book.incidents.get(recovery.incident_id)
    stops = [steps.requeue(recovery.job, recovery.restarts_before)]
    if incident is not None and recovery.via_down:
        stops.append(steps.set_down(incident.node))
    attempts = [i for step in stops for i in world.book.attempts(recovery.incident_id, step)]
    # A DOWN from before this recovery stopped an earlier run.
    return any(not i.settled or (i.state is IntentState.DONE and i.planned_at >= recovery.created_at) for i in attempts)


def _next_run_started(recovery: Recovery, job: Job) -> tuple[Recovery, list[Event]]:
    note = "a later restart took over before this run said it had resumed"
    added = (
        recovery.excluded_added if recovery.phase is RecoveryPhase.RUNNING else waiting.added_exclusions(recovery, job)
    )
    after = replace(recovery, phase=RecoveryPhase.GONE, excluded_added=added, next_run_ended=_REQUEUED, note=note)
    return after, []


def _after_the_stop(world: World, recovery: Recovery, job: Job) -> tuple[Recovery, list[Event]]:
    """The old run is over: Restarts grew."""
    events: list[Event] = []
    after = recovery
    if recovery.phase in _ORDERED:
        after = _with_progress(replace(recovery, phase=RecoveryPhase.RESTARTING, note=""), _record(world, job))
        events.append(_stopped_event(world, recovery, after, _record(world, job)))
    if after.phase is RecoveryPhase.RESTARTING and job.state == "RUNNING":
        after = replace(
            after, phase=RecoveryPhase.RUNNING, excluded_added=waiting.added_exclusions(recovery, job), note=""
        )
        events.append(_running_event(world, after, job))
    elif after.phase is RecoveryPhase.RESTARTING and job.state in slurm_view.ENDED | slurm_view.FAILED:
        return _not_back(after, job, f"the job ended before it ran again: {job.state}"), events
    elif after.phase is RecoveryPhase.RESTARTING and job.state == "PENDING":
        fewer = after.in_service_only or (job.fits_nowhere and bool(waiting.added_exclusions(after, job)))
        after = replace(after, in_service_only=fewer, note=waiting.why(job, after))
    if after.phase is RecoveryPhase.RUNNING:
        after, resumed = _resumption(world, after, job)
        events += resumed
    return after, events


def _not_back(recovery: Recovery, job: Job, note: str) -> Recovery:
    return replace(recovery, phase=RecoveryPhase.GONE, next_run_ended=job.state, note=note)


def _record(world: World, job: Job) -> CheckpointRecord | None:
    return job_checkpoints.checkpoint_of(world, job)


def _with_progress(recovery: Recovery, record: CheckpointRecord | None) -> Recovery:
    """Freeze what the stopped run had saved and reached, before the next run says more."""
    if record is None or record.resumed_restarts == recovery.restarts_before + 1:
        return recovery
    step = recovery.checkpoint_step if recovery.checkpoint_step is not None else record.saved_step
    if record.progress_step is None:
        return replace(recovery, checkpoint_step=step)
    return replace(recovery, checkpoint_step=step, stopped_step=record.progress_step, stopped_estimated=False)


def _resumption(world: World, recovery: Recovery, job: Job) -> tuple[Recovery, list[Event]]:
    record = _record(world, job)
    said = record is not None and record.resumed_restarts == recovery.restarts_before + 1
    if said and record is not None:
        reached = _reached(recovery, record)
        note = run_checkpoints.went_back(recovery, job, record.resumed_step)
        after = replace(
            recovery, phase=RecoveryPhase.RESUMED, resumed_step=record.resumed_step, stopped_step=reached, note=note
        )
        return after, [_resumed_event(world, after, record.resumed_at or world.now)]
    if record is None:
        return replace(recovery, phase=RecoveryPhase.RESUMED, note="the job reports no checkpoint"), []
    if job.state in slurm_view.ENDED | slurm_view.FAILED:
        return _not_back(recovery, job, f"ended before it said it had resumed: {job.state}"), []
    waited = job.start_time is not None and world.now - job.start_time > timedelta(
        seconds=world.policy.job.resume_wait_s
    )
    shown = run_checkpoints.went_on(world, recovery, job, waited=waited)
    if shown is not None:
        after = replace(recovery, phase=RecoveryPhase.RESUMED, resumed_step=shown.step, note=shown.note)
        return after, [] if shown.step is None else [_resumed_event(world, after, world.now)]
    if waited:
        return replace(recovery, phase=RecoveryPhase.RESUMED, note="running, but never said from where it resumed"), []
    return recovery, []


def _reached(recovery: Recovery, record: CheckpointRecord) -> int | None:
    """The last step that the stopped run reported; its last report may arrive after the stop was seen."""
    return record.reached_step if record.reached_step is not None else recovery.stopped_step


def _stopped_event(world: World, before: Recovery, recovery: Recovery, record: CheckpointRecord | None) -> Event:
    by, how = _requeued_by(world, before)
    return Event(
        world.now,
        EventKind.JOB_STOPPED,
        recovery.incident_id,
        job=recovery.job.text,
        text=f"job {recovery.job}: run {recovery.restarts_before} is over, {how}",
        detail={
            **by,
            "restarts": recovery.restarts_before,
            "gpus": recovery.gpus,
            "checkpoint_step": recovery.checkpoint_step,
            "checkpoint_at": record.saved_at.isoformat() if record and record.saved_at else None,
            "stopped_step": recovery.stopped_step,
        },
    )


def _requeued_by(world: World, recovery: Recovery) -> tuple[dict[str, str], str]:
    """Who queued the job again where it was not Holdfast, as a detail of the event; and for people."""
    incident = world.book.incidents.get(recovery.incident_id)
    if _stop_ordered(world, recovery):
        return {}, "requeued under the same id"
    if incident is not None and incident.dead:
        return {"by": "slurm"}, f"requeued under the same id by Slurm, as node {incident.node} died"
    return {"by": "others"}, "requeued under the same id by its owner, an operator or Slurm, not by Holdfast"


def _running_event(world: World, recovery: Recovery, job: Job) -> Event:
    return Event(
        world.now,
        EventKind.JOB_RUNNING,
        recovery.incident_id,
        job=recovery.job.text,
        text=f"job {recovery.job}: running again on {','.join(job.nodes)}",
        detail={
            "restarts": job.restarts,
            "nodes": list(job.nodes),
            "start_time": job.start_time.isoformat() if job.start_time else None,
            "gpus": recovery.gpus,
        },
    )


def _resumed_event(world: World, recovery: Recovery, at: datetime) -> Event:
    lost = None
    if recovery.stopped_step is not None and recovery.resumed_step is not None:
        lost = max(0, recovery.stopped_step - recovery.resumed_step)
    text = f"job {recovery.job}: resumed from step {recovery.resumed_step}"
    about = "about " if recovery.stopped_estimated else ""
    return Event(
        at,
        EventKind.JOB_RESUMED,
        recovery.incident_id,
        job=recovery.job.text,
        text=text if lost is None else f"{text}, {about}{lost} steps lost",
        detail={
            "step": recovery.resumed_step,
            "lost_steps": lost,
            "restarts": recovery.restarts_before + 1,
            "checkpoint_at": recovery.checkpoint_at.isoformat() if recovery.checkpoint_at else None,
        },
    )


def _phase_event(world: World, before: Recovery, after: Recovery) -> Event:
    return Event(
        world.now,
        EventKind.RECOVERY_PHASE,
        after.incident_id,
        job=after.job.text,
        text=f"job {after.job}: {before.phase.value} → {after.phase.value}"
        + (f" ({after.note})" if after.note else ""),
        detail={"from": before.phase.value, "to": after.phase.value},
    )
