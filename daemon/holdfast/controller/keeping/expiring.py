"""Expiry of steps that are never carried out. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.decisions.brakes.guard import harmless
from holdfast.decisions.brakes.planned_steps import forbids, restricts
from holdfast.model.actions.action import NEVER_BEGUN, Intent, IntentState, SendOrder, UnknownAction
from holdfast.model.book import World
from holdfast.model.policies.policy import Mode
from holdfast.ports import IntentOutcome

ORDER_SLACK_S = 10.0
"""An order without an outcome this long after it expired has failed: the agent did not fetch it, or its outcome was lost."""
LATE = IntentOutcome(IntentState.FAILED, "no answer from the agent before the order expired")
_UNBEGUN = {NEVER_BEGUN: True}
UNFETCHED = IntentOutcome(
    IntentState.FAILED,
    "no agent had fetched the order when it expired; to be decided again",
    retryable=True,
    result=_UNBEGUN,
)
MOST_UNFETCHED = 2
"""When a reporting agent lets more orders of one step expire than this, it does not fetch its orders: that is a failure."""
UNKNOWN = IntentOutcome(
    IntentState.FAILED, "planned by another release: this one does not know the step, and never carries it out"
)


OBSERVED = IntentOutcome(
    IntentState.FAILED,
    "observe mode: the step had not started and is not started now",
    retryable=True,
    result=_UNBEGUN,
)


def expired(world: World, intent: Intent) -> IntentOutcome | None:
    """IntentOutcome of an intent that will not be carried out any more; None: it continues, or has ended."""
    action = intent.action
    if intent.settled:
        return None
    if isinstance(action, UnknownAction):
        return UNKNOWN
    planned = intent.state is IntentState.PLANNED
    if world.policy.mode is Mode.OBSERVE and planned and not harmless(action):
        return OBSERVED
    if planned and (why := _forbidden(world, intent)) is not None:
        return IntentOutcome(IntentState.FAILED, why, retryable=True)
    if not isinstance(action, SendOrder) or not _late(world.now, intent, action):
        return None
    if planned:
        return UNFETCHED if _unfetched(world, intent) < MOST_UNFETCHED else LATE
    return (
        None if world.frozen is not None else LATE
    )  # the answer may still be in flight, as no controller took it before


def _forbidden(world: World, intent: Intent) -> str | None:
    """Why a planned step may not be begun by the node sets, or for want of an accept; None: it may, or it is not known now."""
    if world.view is None or not restricts(world.policy):
        return None
    key = intent.action.target.job
    job = world.view.jobs.get(key.job_id) if key is not None else None
    return forbids(world.policy, world.book, intent, world.view.nodes, job)


def _late(now: datetime, intent: Intent, order: SendOrder) -> bool:
    return now - intent.planned_at > timedelta(seconds=order.expires_s + ORDER_SLACK_S)


def _unfetched(world: World, intent: Intent) -> int:
    """Number of orders of this step that expired before."""
    return sum(1 for earlier in world.book.planned(intent.incident_id, intent.step) if earlier.never_begun)
