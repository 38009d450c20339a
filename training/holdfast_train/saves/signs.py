"""Sign of life in a checkpoint directory: written by the group that saves there, and watched by a group that would take over."""

from __future__ import annotations

from collections.abc import Callable, Collection

from holdfast_checkpoint import lease
from holdfast_train.saves.background import PeriodicCall

WATCHED_SIGNS = 2.5
"""A sign that does not change for this many of its intervals belongs to a group that is gone: one sign may be late."""


class Signs:
    """Sign of life of one process."""

    def __init__(self, directory: str, every_s: float, show: Callable[[], None], clock: Callable[[], float]) -> None:
        """``show``: writes the sign once."""
        self._directory, self._every_s, self._show, self._clock = directory, every_s, show, clock
        self._pulse: PeriodicCall | None = None
        self._seen: tuple[tuple[str, int] | None, float] = (None, 0.0)

    @property
    def watch_s(self) -> float:
        """How long a sign must be unchanged."""
        return WATCHED_SIGNS * self._every_s

    def start(self) -> None:
        """Write the sign periodically from now on, in the background."""
        if self._pulse is None:
            self._pulse = PeriodicCall(self._show, self._every_s)

    def stop(self) -> None:
        """Stop, without waiting for a write that hangs."""
        if self._pulse is not None:
            self._pulse.stop()
            self._pulse = None

    def of_another(self, rooms: Collection[str]) -> bool:
        """Whether another group of these rendezvous is alive here, by the reads so far: after the first read, every existing sign
        counts as alive. Stops our own sign. Raises Unreadable."""
        self.stop()
        sign, now_s = lease.sign(self._directory), self._clock()
        if sign != self._seen[0]:
            self._seen = sign, now_s
        return sign is not None and sign[0] in rooms and now_s - self._seen[1] < self.watch_s
