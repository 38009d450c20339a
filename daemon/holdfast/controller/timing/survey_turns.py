"""Checkpoint directories to read, sent in the answer to a heartbeat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.decisions.recovery.checkpoint_surveys import NamedDirectory, named
from holdfast.model.book import World
from holdfast.ports import Clock

KEEP_S = 2.0
"""How long the map is reused before it is computed again."""


@dataclass
class SurveyTurns:
    """Directories by node. For the event loop of the API."""

    world: Callable[[], World | None]
    clock: Clock
    _of: dict[str, list[NamedDirectory]] = field(default_factory=dict)
    _made_at_s: float | None = None

    def of(self, node: str) -> list[NamedDirectory]:
        """The directories that this node's agent is to read periodically."""
        now_s = self.clock.monotonic_s()
        if self._made_at_s is None or now_s - self._made_at_s > KEEP_S:
            world = self.world()
            if world is None:
                return []
            self._of, self._made_at_s = named(world), now_s
        return self._of.get(node, [])
