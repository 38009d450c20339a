"""Silence of this node's fabric, for the heartbeat. Uses the readings of the check ``efa.silence``, so nothing is read twice."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast_checks.checks.efa_silence import fabric_silent_s
from holdfast_checks.result import Result

_LOOKS = 3
"""A reading is too old after this many intervals; the agent reads half as often when short of CPU."""


class Fabric:
    """Result of the last reading."""

    def __init__(self, interval_s: float) -> None:
        """``interval_s``: interval of the check."""
        self._interval_s = interval_s
        self._silent_s: float | None = None
        self._told_s = 0.0

    def told(self, results: Iterable[Result], now_s: float) -> None:
        """Record the check's results. ``now_s``: CLOCK_MONOTONIC."""
        self._silent_s, self._told_s = fabric_silent_s(results), now_s

    def silent_s(self, now_s: float) -> float | None:
        """How long no bytes had been carried as of the last reading, never more than was observed. None: no RDMA device, unreadable, too
        long ago, or nothing carried since the agent started."""
        return self._silent_s if now_s - self._told_s <= _LOOKS * self._interval_s else None
