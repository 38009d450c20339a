"""Do Slurm's reservations show the maintenance windows that operators ordered? Pure."""

from __future__ import annotations

import zlib

from holdfast.controller import facts
from holdfast.controller.decide.part import Part
from holdfast.model import steps
from holdfast.model.action import Proposal
from holdfast.model.book import World
from holdfast.model.ids import UPKEEP
from holdfast.model.maintenance import KeepWindow, Window


def keep_windows(world: World) -> Part:
    """A step for each window whose reservation is not what it should be."""
    view = facts.fresh_view(world)
    if view is None:
        return Part()
    proposals = []
    for window in world.book.windows:
        nodes = window.nodes if window.holds(world.now) else ()
        shown = view.reservations.get(window.reservation)
        if set(nodes) != set(shown.nodes if shown is not None else ()):
            proposals += _step(world, window, nodes)
    return Part(tuple(proposals))


def _step(world: World, window: Window, nodes: tuple[str, ...]) -> list[Proposal]:
    step = steps.keep_window(window.id, zlib.crc32(",".join(sorted(nodes)).encode()), facts.hour(world))
    if not world.may_try(UPKEEP, step):
        return []
    reason = f"maintenance of {len(nodes)} nodes by {window.by}: {window.why}" if nodes else "the maintenance is over"
    return [Proposal(UPKEEP, step, KeepWindow(window.reservation, nodes, window.until), reason, order=5)]
