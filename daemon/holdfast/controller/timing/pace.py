"""Heartbeat interval of agents by the size of the fleet, sent in the answer to a heartbeat (docs/decisions/0020)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from holdfast.decisions.silence import silent_nodes
from holdfast.model.book import World
from holdfast.ports import Clock

SHORTEST_S = 4.0
"""A power loss that only two peers see leads to DOWN after 3.5 heartbeats: with this interval the job runs elsewhere within 20 s."""
LONGEST_S = silent_nodes.LONGEST_HEARTBEAT_S
"""Three of them are the controller's cold start (``[run] cold_start_s``)."""
BEATS_PER_S = 250.0
"""Maximum rate of heartbeats, up to 2,500 nodes: a quarter of a core (docs/benchmarks.md), and as much again where each node's job
reports its steps with them."""
KEEP_S = 10.0
"""How long the size of the fleet is reused before it is read again."""


def interval_s(nodes: int) -> float:
    """Between two heartbeats of one agent in a fleet of this many nodes, in whole seconds: 4 up to 1,000 nodes, 10 from 2,251 on."""
    return min(max(float(ceil(nodes / BEATS_PER_S)), SHORTEST_S), LONGEST_S)


@dataclass
class FleetPace:
    """Heartbeat interval for the fleet. For the event loop of the API."""

    world: Callable[[], World | None]
    clock: Clock
    _given_s: float | None = None
    _read_at_s: float = 0.0

    def __call__(self) -> float | None:
        """The interval to send to agents now; None: the fleet is not known yet."""
        now_s = self.clock.monotonic_s()
        if self._given_s is None or now_s - self._read_at_s > KEEP_S:
            world = self.world()
            if world is not None:
                self._given_s, self._read_at_s = interval_s(silent_nodes.known_agents(world)), now_s
        return self._given_s
