"""How often this agent sends heartbeats: as agent.toml says, otherwise as the leading controller gives it by the size of its fleet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

UNTOLD_S = 10.0
"""Until a controller has given an interval; those of before this release give none."""
INTERVAL = "interval_s"
"""Field of a heartbeat, and of the answer to one."""
_SHORTEST_S, _LONGEST_S = 1.0, 60.0
"""Anything else that a controller gives is a mistake, and says nothing."""


class Pace:
    """The controller calls an agent silent by the interval that its last heartbeat said. So a longer one counts only once a heartbeat that
    says it was taken, a shorter one at once. ``answered`` is called by the thread that sends, the rest by the agent's loop."""

    def __init__(self, set_s: float | None, changed: Callable[[], None] = lambda: None) -> None:
        """``set_s``: agent.toml's, which nothing overrules. ``changed`` is called when :attr:`every_s` is another."""
        self._set_s = set_s
        self._given_s: float | None = None
        self._taken_s: float | None = None
        self._changed = changed

    @property
    def said_s(self) -> float:
        """What the next heartbeat says of its interval."""
        if self._set_s is not None:
            return self._set_s
        return UNTOLD_S if self._given_s is None else self._given_s

    @property
    def every_s(self) -> float:
        """The time between two heartbeats."""
        return self.said_s if self._taken_s is None else min(self.said_s, self._taken_s)

    def answered(self, heartbeat: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Take in the answer to a heartbeat. What a standby says is no word; a leader that gives no interval changes nothing."""
        if answer.get("leader") is not True:
            return
        before_s = self.every_s
        self._taken_s = float(heartbeat[INTERVAL])
        given_s = answer.get(INTERVAL)
        if isinstance(given_s, int | float) and not isinstance(given_s, bool) and _SHORTEST_S <= given_s <= _LONGEST_S:
            self._given_s = float(given_s)
        if self.every_s != before_s:
            self._changed()
