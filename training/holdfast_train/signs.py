"""The sign of life in a directory of checkpoints: shown by the group that writes there, and watched by who would take over."""

from __future__ import annotations

from collections.abc import Callable, Collection

from holdfast_checkpoint import lease
from holdfast_train.background import Pulse

WATCHED_SIGNS = 2.5
"""A sign that does not change for so many of its intervals is of somebody who is gone: one may come late."""


class Signs:
    """Of one process."""

    def __init__(self, directory: str, every_s: float, show: Callable[[], None], clock: Callable[[], float]) -> None:
        """``show``: shows the sign once."""
        self._directory, self._every_s, self._show, self._clock = directory, every_s, show, clock
        self._pulse: Pulse | None = None
        self._seen: tuple[tuple[str, int] | None, float] = (None, 0.0)

    @property
    def watch_s(self) -> float:
        """How long a sign has to stand still."""
        return WATCHED_SIGNS * self._every_s

    def start(self) -> None:
        """Shows the sign from now on, beside the training."""
        if self._pulse is None:
            self._pulse = Pulse(self._show, self._every_s)

    def stop(self) -> None:
        """Does not wait for a sign that hangs."""
        if self._pulse is not None:
            self._pulse.stop()
            self._pulse = None

    def of_another(self, rooms: Collection[str]) -> bool:
        """Whether another group of these rooms is alive here, as far as looks until now tell: the first one thinks so of every sign
        that is there. Ours is shown no more. Raises Unreadable."""
        self.stop()
        sign, now_s = lease.sign(self._directory), self._clock()
        if sign != self._seen[0]:
            self._seen = sign, now_s
        return sign is not None and sign[0] in rooms and now_s - self._seen[1] < self.watch_s
