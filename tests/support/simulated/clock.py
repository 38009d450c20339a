"""Time that moves only when a test says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_UNEVEN_S = 17e-6
EPOCH = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


class SimClock:
    """Implements :class:`holdfast.ports.Clock`."""

    def __init__(self) -> None:
        self.elapsed_s = 0.0
        self.wall_ahead_s = 0.0
        """How far somebody has set the wall clock ahead since the beginning."""

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.elapsed_s + self.wall_ahead_s)

    def monotonic_s(self) -> float:
        return self.elapsed_s

    def step(self, seconds: float) -> None:
        """The wall clock is set; CLOCK_MONOTONIC goes on. By no whole number of seconds: on a clock with microseconds no two moments before
        and after a step back have the same time, as they had here, where time moves by the second."""
        self.wall_ahead_s += seconds + _UNEVEN_S

    def advance(self, seconds: float) -> None:
        self.elapsed_s += seconds
