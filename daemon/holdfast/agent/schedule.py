"""When which check is due, and whether a shaky reading counts. Pure: no clock, no I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

JITTER = 0.1
"""Share of the interval by which a run may be early, so that thousands of nodes do not beat in step."""


class Schedule:
    """Times are seconds of any steady clock, handed in by the caller."""

    def __init__(self, intervals_s: Mapping[str, float], now_s: float, phase: float = 0.0) -> None:
        """``phase`` in [0, 1): where in the jitter this node stands. Everything is due at once at the start."""
        self._intervals_s = dict(intervals_s)
        self._factor = 1.0 - JITTER * phase
        self._due_s = dict.fromkeys(self._intervals_s, now_s)

    def due(self, now_s: float) -> tuple[str, ...]:
        """Names that are due; each is set to its next time, counted from now: a late loop never bunches runs."""
        names = tuple(name for name, at_s in self._due_s.items() if at_s <= now_s)
        for name in names:
            self._due_s[name] = now_s + self._intervals_s[name] * self._factor
        return names

    def set(self, name: str, at_s: float) -> None:
        """Make a name due at this time instead."""
        if name in self._due_s:
            self._due_s[name] = at_s

    def every(self, name: str, interval_s: float, now_s: float) -> None:
        """Give a name another interval; the next time comes no later than it would have."""
        self._intervals_s[name] = interval_s
        self._due_s[name] = min(self._due_s[name], now_s + interval_s * self._factor)

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
