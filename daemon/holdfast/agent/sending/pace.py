"""Heartbeat interval of this agent: from agent.toml, otherwise from the leading controller, by the size of its fleet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

UNTOLD_S = 10.0
"""Interval until a controller has sent one; controllers of earlier releases send none."""
INTERVAL = "interval_s"
"""Field of a heartbeat, and of the answer to one."""
_SHORTEST_S, _LONGEST_S = 1.0, 60.0
"""Limits of the interval; any other value from a controller is a mistake and is ignored."""


class HeartbeatPace:
    """Heartbeat interval. The controller judges silence by the interval in the agent's last heartbeat. So a longer one is used only after a
    heartbeat that contains it was accepted, a shorter one at once. ``answered`` is called by the sending thread, the rest by the loop."""

    def __init__(self, set_s: float | None, changed: Callable[[], None] = lambda: None) -> None:
        """``set_s``: agent.toml's value, which nothing overrides. ``changed`` is called when :attr:`every_s` changes."""
        self._set_s = set_s
        self._given_s: float | None = None
        self._taken_s: float | None = None
        self._changed = changed

    @property
    def said_s(self) -> float:
        """The interval that the next heartbeat reports."""
        if self._set_s is not None:
            return self._set_s
        return UNTOLD_S if self._given_s is None else self._given_s

    @property
    def every_s(self) -> float:
        """The time between two heartbeats."""
        return self.said_s if self._taken_s is None else min(self.said_s, self._taken_s)

    def answered(self, heartbeat: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Process the answer to a heartbeat. An answer of a standby, or without an interval, changes nothing."""
        if answer.get("leader") is not True:
            return
        before_s = self.every_s
        self._taken_s = float(heartbeat[INTERVAL])
        given_s = answer.get(INTERVAL)
        if isinstance(given_s, int | float) and not isinstance(given_s, bool) and _SHORTEST_S <= given_s <= _LONGEST_S:
            self._given_s = float(given_s)
        if self.every_s != before_s:
            self._changed()
