"""Which other nodes an agent tries to reach in calm times, as the answer to its heartbeat names them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.bucket import Bucket
from holdfast.controller.death import domains
from holdfast.model.book import World
from holdfast.model.cluster import Node
from holdfast.ports import Clock

FIRST_AT_ONCE, FIRST_PER_S = 64, 16
"""Agents that are told their neighbours for the first time: each asks Slurm where these are, and thousands may start together."""
KEEP_S = 60.0
"""How long the map is used before it is made again: nodes come and go rarely, heartbeats by the hundred a second."""


@dataclass
class Neighbours:
    """For the event loop of the API."""

    world: Callable[[], World | None]
    clock: Clock
    _of: dict[str, tuple[Node, ...]] = field(default_factory=dict)
    _made_at_s: float | None = None
    _told: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Node → names of those that its agent was told last."""
    _first: Bucket = field(default_factory=lambda: Bucket(FIRST_AT_ONCE, FIRST_PER_S))

    def of(self, node: str) -> tuple[Node, ...]:
        """The nodes that this one watches; empty: none is known, or it is not its turn yet to be told of others than before."""
        now_s = self.clock.monotonic_s()
        if self._made_at_s is None or now_s - self._made_at_s > KEEP_S:
            world = self.world()
            if world is None or world.view is None:
                return ()
            self._of, self._made_at_s = _map(world), now_s
        watched = self._of.get(node, ())
        names = tuple(each.name for each in watched)
        if names != self._told.get(node, ()):
            if not self._first.take(now_s):
                return ()
            self._told[node] = names
        return watched


def _map(world: World) -> dict[str, tuple[Node, ...]]:
    view = world.view
    assert view is not None  # noqa: S101 - the caller looked
    found: dict[str, tuple[Node, ...]] = {}
    for members in domains.domains(view, world.policy.death, world.background.addresses).values():
        for name in members:
            watched = (view.nodes[n] for n in domains.watched_by(members, name))
            found[name] = tuple(n for n in watched if n.address)
    return found
