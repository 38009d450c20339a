"""Schedule of the checks, and hysteresis of their readings. Pure: no clock, no I/O."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType

JITTER = 0.1
"""Share of the interval by which a run may be early, so that thousands of nodes do not run in lockstep."""


class Schedule:
    """Due times by name. Times are seconds of any monotonic clock, passed in by the caller.

    All names are aligned: each is due at whole multiples of its interval since the start, so that runs that coincide (every 15, 30 and
    60 s) keep coinciding and wake the node once."""

    def __init__(
        self,
        intervals_s: Mapping[str, float],
        now_s: float,
        phase: float = 0.0,
        ahead_s: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """``phase`` in [0, 1): this node's offset within the jitter. Everything is due at the start. ``ahead_s``: how long before the
        others these names are due after that."""
        self._intervals_s = dict(intervals_s)
        self._factor = 1.0 - JITTER * phase
        self._began_s = now_s
        self._ahead_s = ahead_s
        self._due_s = dict.fromkeys(self._intervals_s, now_s)

    def due(self, now_s: float) -> tuple[str, ...]:
        """Due names; each is set to its next time, at least half an interval from now, so that a late loop does not bunch runs."""
        names = tuple(name for name, at_s in self._due_s.items() if at_s <= now_s)
        for name in names:
            self._due_s[name] = self._next_s(name, now_s)
        return names

    def _next_s(self, name: str, now_s: float) -> float:
        interval_s = self._intervals_s[name] * self._factor
        if interval_s == float("inf"):
            return interval_s
        first_s = self._began_s - min(self._ahead_s.get(name, 0.0), interval_s / 2)
        return first_s + interval_s * math.ceil((now_s - first_s) / interval_s + 0.5)

    def set(self, name: str, at_s: float) -> None:
        """Make a name due at this time instead."""
        if name in self._due_s:
            self._due_s[name] = at_s

    def put_off(self, name: str, times: float) -> None:
        """Postpone a name by this many intervals; with a whole number it stays aligned."""
        self._due_s[name] += times * self._intervals_s[name] * self._factor

    def every(self, name: str, interval_s: float, now_s: float) -> None:
        """Change the interval of a name; its next time does not become later."""
        self._intervals_s[name] = interval_s
        self._due_s[name] = min(self._due_s[name], self._next_s(name, now_s), now_s + interval_s * self._factor)

    def next_s(self) -> float:
        """When the next name is due; infinity without any."""
        return min(self._due_s.values(), default=float("inf"))


class Hysteresis:
    """Hysteresis: k of the last n readings must be bad to count as bad; k in a row must be good to count as good."""

    def __init__(self, k: int, n: int) -> None:
        if not 1 <= k <= n:
            raise ValueError(f"k of n needs 1 <= k <= n, not {k} of {n}")
        self._k = k
        self._readings: deque[bool] = deque(maxlen=n)
        self._good_in_a_row = 0

    def add(self, bad: bool) -> bool | None:
        """Add a reading. True: it counts as bad now. False: it counts as good. None: neither yet."""
        self._readings.append(bad)
        self._good_in_a_row = 0 if bad else self._good_in_a_row + 1
        if bad and sum(self._readings) >= self._k:
            return True
        return False if self._good_in_a_row >= self._k else None
