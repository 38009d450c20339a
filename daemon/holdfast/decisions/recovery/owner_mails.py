"""Mail to a job's owner: once its job runs again, when its next run ended before that, or when it is held until it is released. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from holdfast.decisions.recovery import owner_note
from holdfast.decisions.recovery.not_back import not_back
from holdfast.decisions.recovery.started_again import by_holdfast
from holdfast.model.actions import steps
from holdfast.model.actions.action import Notify, Proposal
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident, Recovery, RecoveryPhase
from holdfast.model.jobs.opt_in import NO_NOTES_WORD, wants_notes
from holdfast.model.notice import NoticeLevel, Topic
from holdfast.model.policies.lookback import STEP_HOUR_S
from holdfast.model.slurm.cluster import ClusterView, Job

_TOPICS: Mapping[str, Topic] = {
    "recovered": Topic.JOB_RECOVERED,
    "ended": Topic.JOB_NOT_BACK,
    "held": Topic.JOB_HELD,
}


def mail(world: World, view: ClusterView) -> list[Proposal]:
    """Mails that are due; the actor sends none about the same recovery twice."""
    if not world.policy.job.owner_mail:
        return []
    found: list[Proposal] = []
    for recovery in sorted(world.book.recoveries.values(), key=lambda r: r.id):
        job, incident = view.jobs.get(recovery.job.job_id), world.book.incidents.get(recovery.incident_id)
        mine = job is not None and job.continues(recovery.job) and job.user == recovery.user
        if job is not None and incident is not None and mine and wants_notes(job.comment):
            found += _about(world, view, incident, recovery, job)
    return found


def _about(world: World, view: ClusterView, incident: Incident, recovery: Recovery, job: Job) -> list[Proposal]:
    if recovery.phase is RecoveryPhase.RESUMED and _runs(world, recovery, job):
        lines = (owner_note.recovered(world, incident, recovery, job), *owner_note.how_to_resume(world, recovery, job))
        return _mail(
            world, incident, recovery, job, "recovered", f"your job {job.shown_id} runs again", "\n".join(lines)
        )
    over = not_back(world, view, incident, recovery, job)
    if over is not None:
        lines = over.lines(world, incident, recovery)
        return _mail(
            world, incident, recovery, job, "ended", f"your job {job.shown_id} {over.subject}", "\n".join(lines)
        )
    if recovery.phase is RecoveryPhase.HELD and job.held:
        number = job.shown_id
        start = f"scontrol release {number}; scontrol update jobid={number} StartTime=now"
        text = f"{recovery.note}\nOnce the cause is fixed, you can start it: {start}"
        return _mail(world, incident, recovery, job, "held", f"your job {job.shown_id} is held", text)
    return []


def _runs(world: World, recovery: Recovery, job: Job) -> bool:
    """Whether this is the run after the recovery, and began within the time for which the store knows of the mail."""
    if job.state != "RUNNING" or not owner_note.in_the_next_run(recovery, job) or job.start_time is None:
        return False
    return by_holdfast(world, recovery) and world.now - job.start_time < timedelta(seconds=STEP_HOUR_S)


def _mail(
    world: World, incident: Incident, recovery: Recovery, job: Job, what: str, subject: str, text: str
) -> list[Proposal]:
    step = steps.notify_owner(recovery.job, recovery.restarts_before, what)
    if not world.may_try(incident.id, step):
        return []
    more = f"More: scontrol show job {job.shown_id}; {owner_note.why_command(job)}"
    body = f"{subject[0].upper()}{subject[1:]}.\n{text}\n{more}\nFor no such mails: sbatch --comment=holdfast,{NO_NOTES_WORD}"
    level = NoticeLevel.HEALED if what == "recovered" else NoticeLevel.NEEDS_SOMEBODY
    action = Notify(subject, body, level, _TOPICS[what], (incident.node,) if incident.node else (), user=job.user)
    return [Proposal(incident.id, step, action, subject, order=95)]
