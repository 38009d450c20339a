"""Note for a job's owner in AdminComment: set once for a run, withdrawn once it is proved wrong. Pure."""

from __future__ import annotations

from datetime import timedelta

from holdfast.decisions.common import attempted_steps, gpu_link, job_checkpoints, slurm_view
from holdfast.decisions.common.consent import consent
from holdfast.decisions.common.owner_words import fault_of
from holdfast.decisions.nodes.hands_off import HandsOff
from holdfast.decisions.planned import notices
from holdfast.decisions.recovery.started_again import by_holdfast, queued_again
from holdfast.model.actions import steps
from holdfast.model.actions.action import Proposal, TellOwner
from holdfast.model.book import World
from holdfast.model.elastic_jobs.elastic import declares_elastic
from holdfast.model.ids import incident_of_reason
from holdfast.model.incidents.incident import Ground, Incident, IncidentKind, Recovery, RecoveryPhase
from holdfast.model.jobs.opt_in import wants_notes, why_not
from holdfast.model.slurm.cluster import ClusterView, Job

INNOCENT = "the node's agent has proved that the job holds none of the GPUs at fault: it runs on"


def runs_on(world: World, incident: Incident, job: Job) -> str:
    """Note to the owner of a job without consent, while it runs."""
    if job.suspended:
        why = f"node {incident.node} has to go ({fault_of(incident)}); the job is suspended and is left so"
        return f"{why}: it is decided again once it is resumed"
    if incident.dead:
        return f"node {incident.node} is dead; the job did not opt in{why_not(job.comment)}: Slurm ends this run at SlurmdTimeout"
    fault = "will go" if notices.planned(world, incident) else "has a fault"
    return (
        f"node {incident.node} {fault} ({fault_of(incident)}); the job did not opt in{why_not(job.comment)} "
        f"and runs on; if it fails, it is not started again, and {why_command(job)} says why"
    )


def in_other_hands(world: World, incident: Incident, hands: HandsOff, job: Job) -> str:
    """Note to the owner of a job that runs on a faulty node on which no action is taken for now."""
    end = f" until {hands.until:%Y-%m-%d %H:%M} UTC" if hands.until is not None else ""
    after = "after that it is moved off the node if the fault is still there"
    if consent(world, job) is None:
        after = f"it did not opt in{why_not(job.comment)}: if it fails, it is not started again"
    return (
        f"node {incident.node} has a fault ({fault_of(incident)}), and nothing is done about it while the node is in other hands "
        f"({hands.whose}{end}): the job runs on; {after}"
    )


def failed(incident: Incident, job: Job) -> str:
    """Note to the owner of a job without consent that failed because of the fault."""
    return (
        f"the job failed on node {incident.node}, which had a fault ({fault_of(incident)}). It did not opt in{why_not(job.comment)}, "
        f"so it is not started again. To do so: scontrol requeue {job.shown_id}; to opt in: sbatch --comment=holdfast"
    )


def leave(world: World, incident: Incident, job: Job, text: str) -> list[Proposal]:
    """Leave the note, once for this run and incident. None at a job that is over: Slurm takes none (tried on 22.05), and its owner reads
    why with ``holdfast why``."""
    return _note(world, incident, job, steps.tell_owner(job.key, job.restarts), text)


def leave_in_hands(world: World, incident: Incident, hands: HandsOff, job: Job) -> list[Proposal]:
    """The same for a node in other hands: a separate note, so that the owner also learns what is decided afterwards."""
    step = steps.tell_owner_of_hands(job.key, job.restarts)
    return _note(world, incident, job, step, in_other_hands(world, incident, hands, job))


def _note(world: World, incident: Incident, job: Job, step: steps.Step, text: str) -> list[Proposal]:
    if job.state in slurm_view.FAILED or not world.may_try(incident.id, step, job.key):
        return []
    return [Proposal(incident.id, step, TellOwner(job.key, f"holdfast[{incident.id}]: {text}"), text, order=90)]


def take_back(world: World, view: ClusterView) -> list[Proposal]:
    """Withdraw notes about a fault that later turned out not to affect the run."""
    over = (r for r in world.book.recoveries.values() if r.phase is RecoveryPhase.GONE)
    return [p for r in sorted(over, key=lambda r: r.id) for p in _taken_back(world, view, r)]


def _taken_back(world: World, view: ClusterView, recovery: Recovery) -> list[Proposal]:
    job, incident = view.jobs.get(recovery.job.job_id), world.book.incidents.get(recovery.incident_id)
    if job is None or incident is None or job.run != recovery.run or gpu_link.may_have_hit(world, incident, job):
        return []
    step = steps.tell_owner(recovery.job, recovery.restarts_before)
    left = attempted_steps.last(world.book.attempts(incident.id, step, recovery.job))
    if left is None or not isinstance(left.action, TellOwner):
        return []
    if job.admin_comment != left.action.text:  # rule prose: whether it is ours, word for word
        return []
    step = steps.take_note_back(recovery.job, recovery.restarts_before)
    if not world.may_try(incident.id, step, recovery.job):
        return []
    return [Proposal(incident.id, step, TellOwner(job.key, "", instead_of=left.action.text), INNOCENT, order=90)]


def tell_recovered(world: World, view: ClusterView) -> list[Proposal]:
    """Notify the owners of jobs that run again why they were stopped, from where they continue and what was lost."""
    over = (r for r in world.book.recoveries.values() if r.phase is RecoveryPhase.RESUMED)
    return [p for r in sorted(over, key=lambda r: r.id) for p in _recovered(world, view, r)]


def _recovered(world: World, view: ClusterView, recovery: Recovery) -> list[Proposal]:
    job, incident = view.jobs.get(recovery.job.job_id), world.book.incidents.get(recovery.incident_id)
    if job is None or incident is None or job.state != "RUNNING" or not wants_notes(job.comment):
        return []
    if not in_the_next_run(recovery, job) or not by_holdfast(world, recovery):
        return []
    more = f"More: scontrol show job {job.shown_id}; {why_command(job)}"
    text = f"holdfast[{incident.id}]: {recovered(world, incident, recovery, job)}. {more}"
    there = job.admin_comment
    if there == text or (there and incident_of_reason(there) is None):  # rule prose: whether it is ours, word for word
        return []
    step = steps.tell_owner_of_recovery(job.key, recovery.restarts_before, from_where=recovery.resumed_step is not None)
    if not world.may_try(incident.id, step, job.key):
        return []
    return [Proposal(incident.id, step, TellOwner(job.key, text, instead_of=there), text, order=90)]


def in_the_next_run(recovery: Recovery, job: Job) -> bool:
    """Whether Slurm shows the run that the recovery led to."""
    return job.continues(recovery.job) and job.restarts == recovery.restarts_before + 1


def why_command(job: Job) -> str:
    """The command that says more. It needs a token, which not every owner has."""
    return f"holdfast why {job.shown_id} (needs a token of role user: ask the operator)"


def recovered(world: World, incident: Incident, recovery: Recovery, job: Job) -> str:
    """Note to the owner of a job that runs again."""
    begun = f" at {job.start_time:%Y-%m-%d %H:%M:%S} UTC" if job.start_time is not None else ""
    what_to_do = "" if recovery.resumed_step is None else ". Nothing has to be done"
    return (
        f"{stopped(world, incident, recovery)}; run {job.restarts} started{begun}. "
        f"{_from_where(world, recovery, job)}{what_to_do}"
    )


def stopped(world: World, incident: Incident, recovery: Recovery) -> str:
    """Which run was stopped, and by what."""
    return f"run {recovery.restarts_before} was stopped by {cause(world, incident)}"


def cause(world: World, incident: Incident) -> str:
    """The node and its fault."""
    if incident.kind is IncidentKind.HANG:
        return f"a hang ({fault_of(incident)})"
    state = "is dead" if incident.dead else "was to go" if notices.planned(world, incident) else "had a fault"
    return f"node {incident.node}, which {state} ({fault_of(incident)})"


def why_stopped(world: World, incident: Incident, recovery: Recovery) -> str:
    """What ended the run, and who queued its job again; empty: that was neither Holdfast nor the loss of the node."""
    if not queued_again(recovery) or not by_holdfast(world, recovery, incident):
        return ""
    fault = cause(world, incident)
    if recovery.via_down:
        return f"it was on {fault}; Holdfast set the node DOWN, and Slurm queued the job again"
    if recovery.ground in (None, Ground.NODE_LOST):
        return f"it was on {fault}; Slurm queued the job again"
    if recovery.ground is Ground.FAILED:
        return f"it failed because of {fault}; Holdfast queued the job again"
    return f"Holdfast stopped it because of {fault}"


def saves_nothing(world: World, recovery: Recovery, job: Job) -> bool:
    """Whether the job has reported no checkpoint, so that its next run may have begun from nothing."""
    none = job_checkpoints.checkpoint_of(world, job) is None and recovery.checkpoint_step is None
    return none and recovery.resumed_step is None and not declares_elastic(job.comment)


def how_to_resume(world: World, recovery: Recovery, job: Job) -> tuple[str, ...]:
    """Lines for the owner of a job that has reported no checkpoint; for another none."""
    if not saves_nothing(world, recovery, job):
        return ()
    return (
        "How: docs/checkpoints.md, by a line in the job's script or the library holdfast_checkpoint",
        f"Submitted without --open-mode=append, run {job.restarts} overwrites the output of run {recovery.restarts_before}",
    )


def _from_where(world: World, recovery: Recovery, job: Job) -> str:
    step, reached = recovery.resumed_step, recovery.stopped_step
    if step is None and saves_nothing(world, recovery, job):
        begun = f"unless it loads one itself, it began at step 0{_lost(world, recovery, job)}"
        return f"It reported no checkpoint: {begun}. To resume from saves: holdfast checkpoint register DIR"
    if step is None:
        return "The job does not report from which step it continues"
    if reached is None:
        return f"It continues from step {step}"
    about = "about " if recovery.stopped_estimated else ""
    return f"It continues from step {step}; {about}{max(0, reached - step)} steps were lost"


def _lost(world: World, recovery: Recovery, job: Job) -> str:
    """For how long the run before had run; empty: not known. A requeue sets a new submit time."""
    end = world.book.ends.get(recovery.run.text)
    over, begun = end.ended_at if end is not None else job.key.submit_time, recovery.started_at
    if begun is None or over <= begun:
        return ""
    return f"; run {recovery.restarts_before} had run {_span(over - begun)}"


def _span(span: timedelta) -> str:
    minutes = span.total_seconds() / 60
    if minutes < 1:
        return f"{span.total_seconds():.0f} s"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
