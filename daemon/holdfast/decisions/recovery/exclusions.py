"""Release step of a requeued run: one for each list of exclusions, including a list that recurs after another one. Pure."""

from __future__ import annotations

import zlib

from holdfast.model.actions import steps
from holdfast.model.actions.action import Intent, Release
from holdfast.model.actions.steps import Step
from holdfast.model.book import World
from holdfast.model.incidents.incident import Recovery


def release_step(world: World, recovery: Recovery, exclude: tuple[str, ...], size: int | None) -> Step:
    """While the job waits for nodes the suspects change: another list is another step, so that a repaired node counts again."""
    text = f"{','.join(exclude)}{f' on {size}' if size else ''}"
    step = _step(recovery, text)
    earlier = [i for i in world.book.intents_of(recovery.incident_id) if _releases(i, recovery)]
    if not any(i.step == step for i in earlier):
        return step
    latest = earlier[-1]
    if isinstance(latest.action, Release) and (latest.action.exclude, latest.action.nodes) == (exclude, size):
        return latest.step
    return _step(recovery, f"{text} after {latest.key}")


def _step(recovery: Recovery, text: str) -> Step:
    return steps.release(recovery.job, recovery.restarts_before, zlib.crc32(text.encode()))


def _releases(intent: Intent, recovery: Recovery) -> bool:
    action = intent.action
    ours = (
        isinstance(action, Release) and action.job == recovery.job and action.restarts == recovery.restarts_before + 1
    )
    return ours and intent.is_attempt
