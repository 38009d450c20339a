"""Restart status of a run that is over: by Holdfast, by others, or not and why; and what its owner can do. Pure.

Nothing is decided here: this describes what the recoveries, Slurm and the incidents show about this very run."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.decisions.common import slurm_view
from holdfast.decisions.common.consent import consent
from holdfast.decisions.recovery import waiting
from holdfast.model.actions import steps
from holdfast.model.actions.action import Intent, IntentState, TellOwner
from holdfast.model.book import World
from holdfast.model.incidents.incident import Ground, Incident, IncidentKind, Recovery, RecoveryPhase
from holdfast.model.jobs.job_ends import Again, Cause, JobEnd, Reading
from holdfast.model.jobs.opt_in import why_not
from holdfast.model.policies.policy import Mode
from holdfast.model.slurm.cluster import Job

_AT_WORK = frozenset({RecoveryPhase.SAVING, RecoveryPhase.WAITING, RecoveryPhase.STOPPING, RecoveryPhase.RESTARTING})
_QUEUED_AGAIN = frozenset({RecoveryPhase.RESTARTING, RecoveryPhase.RUNNING, RecoveryPhase.RESUMED})
_RAN_AGAIN = frozenset({RecoveryPhase.RUNNING, RecoveryPhase.RESUMED})
_MAY_BE_A_NODE = frozenset({Cause.NODE, Cause.UNKNOWN})
_QUEUED = frozenset({Again.STARTED, Again.BY_OTHERS, Again.COMING, Again.HELD})
"""It is in the queue, or soon will be: its owner need not start it."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """Restart status of a run that is over."""

    again: Again
    next_step: str
    """The same for people."""
    advice: str
    """Actions open to its owner; empty: none, or the cause is still being investigated."""


def outlook(world: World | None, end: JobEnd, recovery: Recovery | None) -> Outlook:
    """``recovery``: of this very run; None: there is none."""
    view = slurm_view.fresh_view(world) if world is not None else None
    found = view.jobs.get(end.job.job_id) if view is not None else None
    job = found if found is not None and found.uid == end.uid and found.continues(end.job) else None
    if end.reading is Reading.PENDING:
        again = Again.NOT_KNOWN
    elif world is None or job is None:
        again = _without_the_job(recovery, known=view is not None)
    elif job.restarts > end.restarts:
        again = _in_a_later_run(world, job, recovery)
    else:
        again = _not_yet(world, job, end, recovery)
    return Outlook(again, _next_step(world, again, end, job, recovery), advice(again, end, job))


def _without_the_job(recovery: Recovery | None, *, known: bool) -> Again:
    if recovery is not None and recovery.phase in _RAN_AGAIN:
        return Again.STARTED
    return Again.FORGOTTEN if known else Again.NOT_KNOWN


def _in_a_later_run(world: World, job: Job, recovery: Recovery | None) -> Again:
    if recovery is None:
        return Again.BY_OTHERS
    if recovery.phase is RecoveryPhase.HELD:
        return Again.HELD if job.held else Again.BY_OTHERS
    return Again.STARTED if by_holdfast(world, recovery) else Again.BY_OTHERS


def by_holdfast(world: World, recovery: Recovery, incident: Incident | None = None) -> bool:
    """Whether its requeue was Holdfast's, or followed the loss of the node. If its steps are forgotten, the ground shows it.

    ``incident``: the recovery's, where the state snapshot may have forgotten it."""
    incident = incident or world.book.incidents.get(recovery.incident_id)
    held = recovery.phase is RecoveryPhase.HELD  # of a running job that is a requeue, too
    if not held and (recovery.ground in (None, Ground.NODE_LOST) or recovery.via_down):
        return recovery.ground is not None or _lost_its_node(incident, recovery)
    if any(i.state is IntentState.DONE for i in (_holds if held else _requeues)(world, recovery)):
        return True
    return incident is None or not incident.open


def _lost_its_node(incident: Incident | None, recovery: Recovery) -> bool:
    """Whether the run ended as its node died, before a ground for stopping it was found: Slurm queues such a job again."""
    return incident is not None and incident.dead and queued_again(recovery)


def queued_again(recovery: Recovery) -> bool:
    """Whether the run that was affected is over, and the job was queued again after it."""
    return recovery.phase in _QUEUED_AGAIN or recovery.next_run_ended != ""


def _holds(world: World, recovery: Recovery) -> tuple[Intent, ...]:
    step = steps.hold_job(recovery.job, recovery.restarts_before)
    return world.book.attempts(recovery.incident_id, step, recovery.job)


def _requeues(world: World, recovery: Recovery) -> tuple[Intent, ...]:
    step = steps.requeue(recovery.job, recovery.restarts_before)
    return world.book.attempts(recovery.incident_id, step, recovery.job)


def _not_yet(world: World, job: Job, end: JobEnd, recovery: Recovery | None) -> Again:
    phase = recovery.phase if recovery is not None else RecoveryPhase.GONE
    if phase in _AT_WORK:
        return _held_back(world) or (Again.COMING if phase is not RecoveryPhase.WAITING else Again.WAITS)
    if phase is RecoveryPhase.HELD:
        return Again.HELD
    if phase is RecoveryPhase.AWAITING_CONSENT:
        return Again.NO_CONSENT
    if phase is RecoveryPhase.LEFT_ALONE:
        return Again.LEFT_ALONE if job.requeueable else Again.CANNOT_BE_REQUEUED
    return _without_a_recovery(world, job, end)


def _held_back(world: World) -> Again | None:
    if world.policy.mode is Mode.OBSERVE:
        return Again.OBSERVED
    return Again.PAUSED if world.book.paused is not None else None


def _without_a_recovery(world: World, job: Job, end: JobEnd) -> Again:
    if end.cause not in _MAY_BE_A_NODE:
        return Again.NO_FAULT
    if _probed(world, end):
        return _held_back(world) or Again.PROBED
    if not end.incident_id:
        return Again.NO_FAULT
    if not job.requeueable:
        return Again.CANNOT_BE_REQUEUED
    return Again.FAULT_OVER if consent(world, job) is not None else Again.NO_CONSENT


def _probed(world: World, end: JobEnd) -> bool:
    mine = (i for i in world.book.open_incidents() if i.kind is IncidentKind.UNEXPLAINED)
    return any(i.run == end.run for i in mine)


# Texts


def now_says(world: World | None, job: Job, recovery: Recovery | None) -> str:
    """Text about the run that Slurm shows; empty: its end says it, or it runs and its owner was not notified. ``recovery``: of the run
    before."""
    if job.state == "COMPLETED":
        return (
            f"it completed: its script ended with exit code 0, whatever became of its steps (sacct -j {job.shown_id})"
        )
    if job.state == "PENDING":
        return waiting.why(job, recovery)
    return _told(world, job) if world is not None and slurm_view.holds(job) else ""


def _told(world: World, job: Job) -> str:
    """The note that its owner finds at the job, if it is of this run: Slurm shows that of an earlier one as well."""
    begun = job.start_time
    notes = [
        i.action.text
        for i in world.book.intents.values()
        if isinstance(i.action, TellOwner)
        and job.continues(i.action.job)
        and begun is not None
        and i.planned_at >= begun
    ]
    shown = job.admin_comment
    ours = shown in notes  # rule prose: whether it is ours, word for word
    return shown if ours else ""


_NEXT = {
    Again.STARTED: "Holdfast has started it again: {now}",
    Again.BY_OTHERS: "it was queued again, and not by Holdfast: {now}",
    Again.COMING: "Holdfast is about to start it again",
    Again.WAITS: "Holdfast is to start it again, and waits: {note}",
    Again.PAUSED: "Holdfast starts nothing while it is paused (by {paused}); it is to start this job again after that",
    Again.OBSERVED: 'Holdfast only observes here (mode = "observe") and starts no job again',
    Again.HELD: "Holdfast holds it in the queue: {note}",
    Again.PROBED: "its nodes are probed in pairs; if one of them fails, Holdfast starts it again off that node",
    Again.NO_CONSENT: "Holdfast does not start it again: it did not opt in (sbatch --comment=holdfast){comment}",
    Again.CANNOT_BE_REQUEUED: "Holdfast does not start it again: Slurm requeues no such job (salloc, srun, --no-requeue)",
    Again.LEFT_ALONE: "Holdfast does not start it again: {note}",
    Again.NO_FAULT: "Holdfast does not start it again: it does so only where a fault of a node may be to blame",
    Again.FAULT_OVER: "Holdfast does not start it again: the incident of the fault is over, or an operator's",
    Again.FORGOTTEN: "Slurm no longer knows the job, so nothing starts it again",
    Again.NOT_KNOWN: "whether it is started again is not known yet",
}


def _next_step(world: World | None, again: Again, end: JobEnd, job: Job | None, recovery: Recovery | None) -> str:
    note = recovery.note if recovery is not None else ""
    paused = (world.book.paused if world is not None else None) or "an operator"
    return _NEXT[again].format(
        now=_now(end, job, recovery),
        note=note or "no reason is on record",
        paused=paused,
        comment=why_not(job.comment) if job is not None else "",
    )


def _now(end: JobEnd, job: Job | None, recovery: Recovery | None) -> str:
    if job is None:
        return f"as run {end.restarts + 1}"
    run = f"run {job.restarts}"
    return f"{run} {waiting.why(job, recovery)}" if job.state == "PENDING" else f"{run} is {job.state}"


_MEND = {
    Cause.NODE: "the program is not to blame",
    Cause.MEMORY: "ask for more memory (--mem, --mem-per-gpu), or use less: smaller batches, fewer workers",
    Cause.DISK: "free space or ask for a larger quota",
    Cause.TIME: "save before the limit and resume (--signal=B:USR1@120), or ask for more time (--time)",
    Cause.CODE: "fix the program",
    Cause.NO_FILE: "see that the folder of its output exists on {node}, that user {user} may write there, and that --input names a file",
    Cause.STOPPED: "if it is still wanted",
    Cause.UNKNOWN: "read the end of its output, {output}",
}
_NEVER_MET = "DependencyNeverSatisfied"
_AS_IT_WAS = frozenset({Cause.NODE, Cause.DISK, Cause.NO_FILE, Cause.STOPPED, Cause.UNKNOWN})
"""Causes after which the job may succeed as it was submitted."""


def advice(again: Again, end: JobEnd, job: Job | None) -> str:
    """Actions open to the job's owner."""
    if end.reading is Reading.PENDING:
        return ""
    node, output = next(iter(end.nodes), "the node"), end.output or "which went to the terminal that started it"
    mend = _MEND[end.cause].format(node=node, user=end.user or "its user", output=output)
    if again is Again.LEFT_ALONE and job is not None and job.required_nodes:
        return "submit it again without that node in --nodelist"
    if again in _QUEUED or again is Again.LEFT_ALONE:
        return "" if end.cause in (Cause.NODE, Cause.STOPPED) else mend
    if end.reason == _NEVER_MET:  # rule prose: Slurm's own words
        return "submit it again with a dependency that can be met"
    then = _start(end, job)
    between = {Cause.STOPPED: ", ", Cause.NODE: "; to run it again, ", Cause.UNKNOWN: "; to run it again, "}
    return f"{mend}{between.get(end.cause, ', then ')}{then}"


def _start(end: JobEnd, job: Job | None) -> str:
    if job is None or end.cause not in _AS_IT_WAS:
        return "submit it again"
    if not job.requeueable:
        return "submit it again (Slurm refuses to requeue it)"
    return f"scontrol requeue {job.shown_id}"
