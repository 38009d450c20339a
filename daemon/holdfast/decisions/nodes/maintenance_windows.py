"""Slurm reservations for the maintenance windows that operators ordered. Pure."""

from __future__ import annotations

import zlib
from datetime import timedelta

from holdfast.decisions.common import attempted_steps, slurm_view
from holdfast.decisions.common.part import Part
from holdfast.model.actions import steps
from holdfast.model.actions.action import Intent, IntentState, Notify, Proposal
from holdfast.model.book import World
from holdfast.model.ids import UPKEEP
from holdfast.model.notice import NoticeLevel, Topic
from holdfast.model.operators.maintenance import KeepWindow, Window
from holdfast.model.slurm.cluster import ClusterView

_LASTS = timedelta(seconds=30)
"""A reservation that was as ordered this long ago, and is not now, was changed by Slurm or by an operator: it is ordered again."""
_REFUSED = timedelta(seconds=60)
"""Retry a request that Slurm refused after this long: a node may have left slurm.conf at that moment."""
_TOLD_AFTER = 3
"""Notify after this many refusals in a row."""


def keep_windows(world: World) -> Part:
    """A step for each window whose reservation is not as ordered, and a notification if such a step fails.

    Nodes that Slurm does not show are left out: it refuses a change that names one, and with it that of all others."""
    view = slurm_view.fresh_view(world)
    if view is None:
        return Part()
    proposals = []
    for window in world.book.windows:
        nodes = tuple(n for n in window.nodes if n in view.nodes) if window.holds(world.now) else ()
        shown = view.reservations.get(window.reservation)
        held = shown.nodes if shown is not None else ()
        if set(nodes) != set(held):
            proposals += _step(world, view, window, nodes, held)
    return Part(tuple(proposals))


def _step(
    world: World, view: ClusterView, window: Window, nodes: tuple[str, ...], held: tuple[str, ...]
) -> list[Proposal]:
    change = f"{','.join(sorted(held))}>{','.join(sorted(nodes))}"
    step = steps.keep_window(window.id, zlib.crc32(change.encode()), attempted_steps.hour(world))
    attempts = world.book.attempts(UPKEEP, step)
    if world.may_follow(attempts) or _again(view, attempts):
        what = f"maintenance of {len(nodes)} nodes by {window.by}: {window.why}"
        reason = what if nodes else "the maintenance is over"
        return [Proposal(UPKEEP, step, KeepWindow(window.reservation, nodes, window.until), reason, order=5)]
    return _told(world, window, attempts)


def _again(view: ClusterView, attempts: tuple[Intent, ...]) -> bool:
    latest = attempted_steps.last(attempts)
    if latest is None or latest.finished_at is None:
        return False
    return view.read_at > latest.finished_at + (_LASTS if latest.state is IntentState.DONE else _REFUSED)


def _told(world: World, window: Window, attempts: tuple[Intent, ...]) -> list[Proposal]:
    latest = attempted_steps.last(attempts)
    refused = [i for i in attempts if i.state in (IntentState.FAILED, IntentState.REFUSED) and not i.retryable]
    if latest is None or latest not in refused or len(refused) < _TOLD_AFTER:
        return []
    told = steps.notify_failing(latest.step)
    if not world.may_try(UPKEEP, told):
        return []
    subject = f"the reservation of the maintenance by {window.by} is not as ordered: {latest.outcome}"
    body = (
        f"{subject}\nSlurm's reservation {window.reservation} should keep {','.join(window.nodes)}. Holdfast keeps its hands off "
        f"these nodes; jobs may start on them, or be kept off others.\nscontrol show reservation {window.reservation}; holdfast maintain"
    )
    return [
        Proposal(
            UPKEEP,
            told,
            Notify(subject, body, NoticeLevel.NEEDS_SOMEBODY, Topic.MAINTENANCE_WINDOW, window.nodes),
            latest.outcome,
            order=90,
        )
    ]
