"""Attempts of one step: the last one, one that succeeded, one that failed for good. Pure."""

from __future__ import annotations

from holdfast.model.actions.action import Intent, IntentState
from holdfast.model.book import World
from holdfast.model.policies.lookback import STEP_HOUR_S


def last(attempts: tuple[Intent, ...]) -> Intent | None:
    return attempts[-1] if attempts else None


def done(attempts: tuple[Intent, ...]) -> Intent | None:
    """The attempt that succeeded, if any."""
    return next((i for i in reversed(attempts) if i.state is IntentState.DONE), None)


def hour(world: World) -> int:
    """Hour number in the name of a step that may come after its incident was closed: the store keeps such intents for an hour, and an
    attempt in another hour is a separate step."""
    return int(world.now.timestamp()) // STEP_HOUR_S


def failed_for_good(attempts: tuple[Intent, ...]) -> Intent | None:
    """The last attempt of a step, if it failed in a way that repeating cannot fix."""
    latest = last(attempts)
    return latest if latest is not None and latest.state is IntentState.FAILED and not latest.retryable else None
