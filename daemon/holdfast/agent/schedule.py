"""When which check is due, and whether a shaky reading counts. Pure: no clock, no I/O."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType

JITTER = 0.1
"""Share of the interval by which a run may be early, so that thousands of nodes do not beat in step."""


class Schedule:
    """Times are seconds of any steady clock, handed in by the caller.

    All names beat to one bar: each is due at whole multiples of its interval since the start, so that what falls on the same moment
    (every 15, 30 and 60 s) goes on doing so, and wakes the node once."""

    def __init__(
        self,
        intervals_s: Mapping[str, float],
        now_s: float,
        phase: float = 0.0,
        ahead_s: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """``phase`` in [0, 1): where in the jitter this node stands. Everything is due at once at the start. ``ahead_s``: names that are
        due so long before the others of their beat from then on."""
        self._intervals_s = dict(intervals_s)
        self._factor = 1.0 - JITTER * phase
        self._began_s = now_s
        self._ahead_s = ahead_s
        self._due_s = dict.fromkeys(self._intervals_s, now_s)

    def due(self, now_s: float) -> tuple[str, ...]:
        """Names that are due; each is set to its next time, at least half an interval from now: a late loop never bunches runs."""
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
        """Have it come so many intervals later than it would have; with a whole number it stays in the bar."""
        self._due_s[name] += times * self._intervals_s[name] * self._factor

    def every(self, name: str, interval_s: float, now_s: float) -> None:
        """Give a name another interval; the next time comes no later than it would have."""
        self._intervals_s[name] = interval_s
        self._due_s[name] = min(self._due_s[name], self._next_s(name, now_s), now_s + interval_s * self._factor)

    def next_s(self) -> float:
        """When the next name is due; infinity without any."""
        return min(self._due_s.values(), default=float("inf"))


class Hysteresis:
    """k of the last n readings must be bad before they count; k in a row must be good before that is believed."""

    def __init__(self, k: int, n: int) -> None:
        if not 1 <= k <= n:
            raise ValueError(f"k of n needs 1 <= k <= n, not {k} of {n}")
        self._k = k
        self._readings: deque[bool] = deque(maxlen=n)
        self._good_in_a_row = 0

    def add(self, bad: bool) -> bool | None:
        """True: it counts as bad now. False: it counts as good. None: neither yet."""
        self._readings.append(bad)
        self._good_in_a_row = 0 if bad else self._good_in_a_row + 1
        if bad and sum(self._readings) >= self._k:
            return True
        return False if self._good_in_a_row >= self._k else None
