"""Time that moves only when a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_UNEVEN_S = 17e-6
EPOCH = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


class SimClock:
    """Implements :class:`holdfast.ports.Clock`."""

    def __init__(self) -> None:
        self.elapsed_s = 0.0
        self.wall_ahead_s = 0.0
        """How far the wall clock was set ahead since the beginning."""

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.elapsed_s + self.wall_ahead_s)

    def monotonic_s(self) -> float:
        return self.elapsed_s

    def step(self, seconds: float) -> None:
        """Set the wall clock; CLOCK_MONOTONIC is unaffected. Not by whole seconds: on a clock with microseconds no two moments before
        and after a step back are equal, as they would be here, where time moves by the second."""
        self.wall_ahead_s += seconds + _UNEVEN_S

    def advance(self, seconds: float) -> None:
        self.elapsed_s += seconds
