"""Which other nodes an agent tries to reach in calm times, as the answer to its heartbeat names them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.bucket import Bucket
from holdfast.decisions.death import domains
from holdfast.model.book import World
from holdfast.model.cluster import Node
from holdfast.ports import Clock

FIRST_AT_ONCE, FIRST_PER_S = 64, 16
"""Agents that are told their neighbours: one that started asks Slurm where these are, and thousands may start together. Which of them
started is not seen here, so that each is told again only after a while: none loses what it was told by hearing nothing."""
KEEP_S = 60.0
"""How long the map is used before it is made again: nodes come and go rarely, heartbeats by the hundred a second."""


@dataclass
class Neighbours:
    """For the event loop of the API."""

    world: Callable[[], World | None]
    clock: Clock
    _of: dict[str, tuple[Node, ...]] = field(default_factory=dict)
    _made_at_s: float | None = None
    _told: dict[str, tuple[tuple[str, ...], float]] = field(default_factory=dict)
    """Node → names of those that its agent was told last, and when."""
    _first: Bucket = field(default_factory=lambda: Bucket(FIRST_AT_ONCE, FIRST_PER_S))

    def of(self, node: str) -> tuple[Node, ...]:
        """The nodes that this one watches; empty: none is known, or it is not its turn to be told."""
        now_s = self.clock.monotonic_s()
        if self._made_at_s is None or now_s - self._made_at_s > KEEP_S:
            world = self.world()
            if world is None or world.view is None:
                return ()
            self._of, self._made_at_s = _map(world), now_s
        watched = self._of.get(node, ())
        names = tuple(each.name for each in watched)
        before, told_s = self._told.get(node, ((), now_s))
        if not watched or (names == before and now_s - told_s < 2 * len(self._of) / FIRST_PER_S):
            return ()
        if not self._first.take(now_s):
            return ()
        self._told[node] = names, now_s
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
