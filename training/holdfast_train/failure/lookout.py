"""Eviction watch: ends a group that was evicted while its loop hangs. A loop that hangs never requests its next step, and Slurm waits
for the end of its processes (KillWait, 30 s) before it starts the group elsewhere."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from holdfast_train.errors import Refused, tell
from holdfast_train.failure.events import REQUEUE

LOOK_S = 2.0
"""How long the loop may be busy before the quorum service is asked, and the interval of requests."""


class Lookout:
    """Checks from a thread whether this group still has its place, while the loop is busy for long."""

    def __init__(
        self, refusal: Callable[[], Refused | None], end: Callable[[int], object] = os._exit, look_s: float = LOOK_S
    ) -> None:
        """``refusal``: why the rendezvous refuses this group now. ``end``: ends the process at once, whatever its main thread does."""
        self._refusal, self._end, self._look_s = refusal, end, look_s
        self._work = 0
        self._busy = self._stopping = False
        self._changed = threading.Condition()
        threading.Thread(target=self._watch, name="lookout", daemon=True).start()

    def busy(self) -> None:
        """The loop is busy with its own work from now on."""
        self._set(busy=True)

    def asking(self) -> None:
        """The loop requests the quorum itself now."""
        self._set(busy=False)

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def _set(self, *, busy: bool) -> None:
        with self._changed:
            self._busy, self._work = busy, self._work + 1
            self._changed.notify()

    def _watch(self) -> None:
        while (work := self._long_work()) is not None:
            refusal = self._refusal()
            if refusal is not None and refusal.status == REQUEUE and self._still(work):
                tell(refusal)
                self._end(REQUEUE)
                return

    def _long_work(self) -> int | None:
        """Wait until the same work has lasted for ``look_s``. None: the watch was stopped."""
        with self._changed:
            while not self._stopping:
                work = self._work
                self._changed.wait(self._look_s if self._busy else None)
                if self._busy and self._work == work and not self._stopping:
                    return work
        return None

    def _still(self, work: int) -> bool:
        with self._changed:
            return self._busy and self._work == work and not self._stopping
