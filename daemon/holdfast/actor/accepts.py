"""The actor's own check of node sets and accepts, right before a step, by its own settings and Slurm's own answer.

Which nodes are never touched, or only observed, the store has no say in. An operator's accept is in the store, which the controller writes:
what that proves is in docs/threat-model.md."""

from __future__ import annotations

from holdfast.decisions.brakes.planned_steps import forbids, goes_by_slurm, restricts
from holdfast.decisions.common.het_jobs import whole
from holdfast.model.actions.action import Intent, IntentState
from holdfast.model.book import Book
from holdfast.model.errors import NotFound, OutsideError
from holdfast.model.policies.policy import Policy
from holdfast.model.slurm.cluster import Job
from holdfast.ports import IntentOutcome, Scheduler


def forbidden(policy: Policy, book: Book, intent: Intent, scheduler: Scheduler) -> IntentOutcome | None:
    """Outcome of a planned step that these settings do not allow; None: they do. While Slurm does not answer, nothing is begun for
    which it would have to be asked."""
    if intent.state is not IntentState.PLANNED or not restricts(policy):
        return None
    try:
        shown = scheduler.all_nodes() if goes_by_slurm(policy) else {}
        why = forbids(policy, book, intent, shown, _job(intent, scheduler))
    except OutsideError as error:
        return IntentOutcome(IntentState.FAILED, f"which node set it is about is not known: {error}", retryable=True)
    except ValueError as error:
        return IntentOutcome(IntentState.REFUSED, f"its key names no step: {error}")
    return IntentOutcome(IntentState.FAILED, why, retryable=True) if why is not None else None


def _job(intent: Intent, scheduler: Scheduler) -> Job | None:
    """The job that the step is about; a heterogeneous job as one, as Slurm stops all of its components with any of them. None: there is
    none (any more)."""
    key = intent.action.target.job
    if key is None:
        return None
    try:
        job = scheduler.job(key.job_id)
    except NotFound:
        return None
    if job.het_leader is None:
        return job
    try:
        return whole(scheduler.components(job.het_leader))
    except NotFound:  # Slurm has forgotten the leader: each component is on its own
        return job
