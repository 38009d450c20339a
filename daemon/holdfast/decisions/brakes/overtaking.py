"""Whether a brake that tripped after a step was planned holds it. Pure.

The actor asks this right before the step, and the controller of what it planned: both have to come to the same answer."""

from __future__ import annotations

from holdfast.model.actions.action import Drain, HoldJob, Intent, IntentState, Requeue
from holdfast.model.actions.budgets import budget_of
from holdfast.model.book import Book

_BRAKED = (Drain, Requeue, HoldJob)


def overtakes(book: Book, intent: Intent) -> bool:
    """Whether a brake holds the step that was planned before it, or in the same turn: that one stops no job, so that it is treated like an
    older one."""
    tripped = max((b.tripped_at for b in book.brakes_on(intent.incident_id, _nodes(book, intent))), default=None)
    if tripped is None or intent.planned_at > tripped or not _braked(intent):
        return False
    return not (isinstance(intent.action, Requeue) and _stops_nobody(book, intent.action))


def _nodes(book: Book, intent: Intent) -> tuple[str, ...]:
    """Nodes that the step is about, in addition to the incident's."""
    action = intent.action
    named = (action.target.node,) if action.target.node else ()
    job = action.target.job
    mine = (r for r in book.recoveries.values() if job is not None and not r.final and r.job == job)
    return (*named, *(node for r in mine for node in r.nodes_before))


def _braked(intent: Intent) -> bool:
    """Whether brakes hold such a step: new drains, stops of jobs, and repair steps that have not started."""
    begins = intent.state is IntentState.PLANNED and budget_of(intent.action) is not None
    return begins or isinstance(intent.action, _BRAKED)


def _stops_nobody(book: Book, action: Requeue) -> bool:
    """Whether the run is over already: jobs that failed or lost a node are recovered while a brake holds."""
    recovery = book.recovery_of(action.job, action.restarts)
    return recovery is not None and not recovery.stops_running_job
