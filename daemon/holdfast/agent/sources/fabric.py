"""How long has this node's fabric been silent? For the heartbeat, by the looks of the check ``efa.silence``: nothing is read twice."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast_checks.checks.efa_silence import fabric_silent_s
from holdfast_checks.result import Result

_LOOKS = 3
"""So many intervals after the last look its word is too old; short of CPUs the agent looks half as often."""


class Fabric:
    """What the last look said."""

    def __init__(self, interval_s: float) -> None:
        """``interval_s``: of the check."""
        self._interval_s = interval_s
        self._silent_s: float | None = None
        self._told_s = 0.0

    def told(self, results: Iterable[Result], now_s: float) -> None:
        """The check has looked. ``now_s``: CLOCK_MONOTONIC."""
        self._silent_s, self._told_s = fabric_silent_s(results), now_s

    def silent_s(self, now_s: float) -> float | None:
        """How long no bytes had been carried at the last look: never more than was seen. None: no RDMA device, unreadable, too long ago,
        or nothing carried since the agent began."""
        return self._silent_s if now_s - self._told_s <= _LOOKS * self._interval_s else None
