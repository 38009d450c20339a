"""Neighbours of a node: other nodes that its agent probes while all is well, sent in the answer to its heartbeat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.bucket import Bucket
from holdfast.decisions.death import domains
from holdfast.model.book import World
from holdfast.model.slurm.cluster import Node
from holdfast.ports import Clock

FIRST_AT_ONCE, FIRST_PER_S = 64, 16
"""Rate at which agents are sent their neighbours. An agent that has started asks Slurm for their addresses, and thousands may start at
once. A restart is not visible here, so each agent is sent the list again only after a while; an answer without a list changes nothing."""
KEEP_S = 60.0
"""How long the map is reused before it is computed again: nodes come and go rarely, heartbeats arrive by the hundred a second."""


@dataclass
class NeighbourLists:
    """For the event loop of the API."""

    world: Callable[[], World | None]
    clock: Clock
    _of: dict[str, tuple[Node, ...]] = field(default_factory=dict)
    _made_at_s: float | None = None
    _told: dict[str, tuple[tuple[str, ...], float]] = field(default_factory=dict)
    """Node → neighbours last sent to its agent, and when."""
    _first: Bucket = field(default_factory=lambda: Bucket(FIRST_AT_ONCE, FIRST_PER_S))

    def of(self, node: str) -> tuple[Node, ...]:
        """The nodes that this one is to probe; empty: none is known, or it is not this agent's turn."""
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
