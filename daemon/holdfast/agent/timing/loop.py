"""The agent's event loop: descriptors, periodic tasks and calls from other threads."""

from __future__ import annotations

import logging
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from holdfast import unexpected
from holdfast.agent.timing.schedule import Schedule

log = logging.getLogger(__name__)

WATCHED, CALLED = "descriptor", "call"
"""Names under which failures of unnamed tasks are reported (:mod:`holdfast.unexpected`)."""
PAUSE_S = 0.05
"""Pause after an error: a descriptor that stays readable would otherwise fail in a busy loop."""
WELL_AGAIN_S = 60.0
"""A task counts as failing until it has passed for this long."""

Task = Callable[[], None]


class HasFileno(Protocol):
    def fileno(self) -> int: ...


class Loop:
    """Event loop. Tasks must not block; anything that can hang runs in a child process or a separate thread."""

    def __init__(
        self,
        tasks: Mapping[str, tuple[float, Task]],
        phase: float = 0.0,
        ahead_s: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """``tasks``: name → (interval in seconds, what to do). All are due at the start, in this order. ``phase``, ``ahead_s``: as of
        :class:`Schedule`."""
        self._tasks = {name: task for name, (_interval, task) in tasks.items()}
        intervals = {name: interval for name, (interval, _task) in tasks.items()}
        self.schedule = Schedule(intervals, time.monotonic(), phase, ahead_s)
        self._selector = selectors.DefaultSelector()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wake_fd, selectors.EVENT_READ, self._woken)
        self._closing = threading.RLock()
        self._failed_at_s: dict[str, float] = {}
        """Tasks that raised recently, with the time of the last error."""
        self._calls: deque[Task] = deque()
        self._stopping = threading.Event()

    def run(self) -> None:
        """Run until :meth:`stop`."""
        while not self._stopping.is_set():
            self.turn(self.schedule.next_s() - time.monotonic())

    def turn(self, timeout_s: float) -> None:
        """Wait for an event, then run everything that is due once."""
        for ready, _events in self._selector.select(max(0.0, min(timeout_s, 60.0))):
            self._do(WATCHED, ready.data)
        while self._calls:
            self._do(CALLED, self._calls.popleft())
        for name in self.schedule.due(time.monotonic()):
            self._do(name, self._tasks[name])

    def _do(self, name: str, task: Task) -> None:
        """Run a task. An exception does not end the loop: the agent would meet it again after its restart, and report nothing at all."""
        try:
            task()
        except Exception as error:  # noqa: BLE001 - the other tasks go on
            unexpected.failed(name, error)
            self._failed_at_s[name] = time.monotonic()
            time.sleep(PAUSE_S)
        else:
            if name in self._failed_at_s and time.monotonic() - self._failed_at_s[name] > WELL_AGAIN_S:
                del self._failed_at_s[name]
                unexpected.passed(name)

    def watch(self, source: HasFileno | int, task: Task) -> None:
        """Call ``task`` in each iteration in which the descriptor is readable."""
        self._selector.register(source, selectors.EVENT_READ, task)

    def call(self, task: Task, *, soon: bool = True) -> None:
        """Have the loop run a task soon, or with ``soon`` false in its next iteration; from any thread or signal handler."""
        self._calls.append(task)
        if soon:
            self._wake()

    def stop(self) -> None:
        """End after this iteration; from any thread or signal handler."""
        self._stopping.set()
        self._wake()

    def close(self) -> None:
        with self._closing:
            self._selector.close()
            os.close(self._wake_fd)
            self._wake_fd = -1

    def _wake(self) -> None:
        # A signal handler runs in the loop's own thread, possibly in the middle of this: hence a lock that it may take again.
        with self._closing:
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    def _woken(self) -> None:
        os.eventfd_read(self._wake_fd)
