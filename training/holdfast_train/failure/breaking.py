"""Abort a collective in which a peer will never take part, without waiting for its timeout.

A peer that lost power, or hangs, sends nothing: gloo would wait for its timeout, and has no abort. When the quorum service reports
a member as gone, the connections of the process group are cut instead. NCCL's abort works."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from torch._C._distributed_c10d import ProcessGroup, Store
from torchft.process_group import ProcessGroupGloo

from holdfast_train.failure.lines import Lines

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.2
"""How often the quorum service is asked for the remaining members, while a collective takes longer than usual."""


class BreakableGloo(ProcessGroupGloo):  # type: ignore[misc]  # torchft has no types
    """torchft's gloo group, whose blocked collectives :meth:`break_off` ends."""

    _lines = Lines()

    def _create_pg(self, store: Store, rank: int, world_size: int) -> ProcessGroup:
        self._lines = Lines()
        with self._lines.noted():
            made: ProcessGroup = super()._create_pg(store, rank, world_size)
        return made

    def break_off(self) -> None:
        """Cut the connections to all peers: running collectives fail now, at both ends."""
        self._lines.cut()


class CollectiveGuard:
    """Watches collectives from a thread: one that takes longer than usual, with a member that is gone, is aborted."""

    def __init__(self, members_left: Callable[[], int | None], break_off: Callable[[], object]) -> None:
        """``members_left``: number of members of the present quorum that are not known to be gone; None: not known."""
        self._members_left, self._break_off = members_left, break_off
        self._usual_s = 0.0
        self._begun_s: float | None = None
        self._members = 0
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._watch, name="collective-guard", daemon=True)
        self._thread.start()

    def begin(self, members: int) -> None:
        """A collective with this many groups starts."""
        with self._changed:
            self._begun_s, self._members = time.monotonic(), members
            self._changed.notify()

    def end(self) -> None:
        """The collective has ended or failed."""
        with self._changed:
            if self._begun_s is not None:
                took_s = time.monotonic() - self._begun_s
                self._usual_s = (
                    took_s if not self._usual_s else 0.9 * self._usual_s + 0.1 * min(took_s, 10 * self._usual_s)
                )
            self._begun_s = None

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def _watch(self) -> None:
        while (late := self._late()) is not None:
            begun_s, members = late
            left = self._members_left()
            if left is None or left >= members or not self._is_over(begun_s):
                continue
            log.warning("event=collective_broken_off members=%d left=%d", members, left)
            self._break_off()

    def _late(self) -> tuple[float, int] | None:
        """Wait for a collective that takes longer than usual. Returns its start and its members. None: the watch was stopped."""
        with self._changed:
            while not self._stopping:
                begun_s = self._begun_s
                if begun_s is None:
                    self._changed.wait()
                    continue
                late_s = max(LOOK_EVERY_S, 2 * self._usual_s)
                self._changed.wait(max(LOOK_EVERY_S, begun_s + late_s - time.monotonic()))
                if self._begun_s == begun_s and time.monotonic() >= begun_s + late_s:
                    return begun_s, self._members
        return None

    def _is_over(self, begun_s: float) -> bool:
        """Whether it is still the same collective, which counts as ended from now on."""
        with self._changed:
            same = self._begun_s == begun_s
            if same:
                self._begun_s = None
            return same
