"""How steps end that are never carried out. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.controller.guard import harmless
from holdfast.model.action import Intent, IntentState, SendOrder, UnknownAction
from holdfast.model.policy import Mode
from holdfast.ports import Outcome

ORDER_SLACK_S = 10.0
"""An order without an outcome so long after it expired has failed: the agent did not take it, or its word was lost."""
LATE = Outcome(IntentState.FAILED, "no answer from the agent before the order expired")
UNKNOWN = Outcome(
    IntentState.FAILED, "planned by another release: this one does not know the step, and never carries it out"
)


OBSERVED = Outcome(IntentState.FAILED, "observe mode: it was not begun before, and is not begun now", retryable=True)


def expired(now: datetime, intent: Intent, mode: Mode) -> Outcome | None:
    """How an intent ends that is not carried out any more; None: it continues, or has ended."""
    action = intent.action
    if intent.settled:
        return None
    if isinstance(action, UnknownAction):
        return UNKNOWN
    if mode is Mode.OBSERVE and intent.state is IntentState.PLANNED and not harmless(action):
        return OBSERVED
    late = isinstance(action, SendOrder) and (
        now - intent.planned_at > timedelta(seconds=action.expires_s + ORDER_SLACK_S)
    )
    return LATE if late else None
