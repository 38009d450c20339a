"""Everything that reaches a launcher while it waits: signals, exits of children, and the agent's messages."""

from __future__ import annotations

import os
import select
import signal
from collections import deque
from collections.abc import Iterator
from types import FrameType
from typing import Any

from holdfast.launcher.link import AgentLink

CAUGHT = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


class LauncherInbox:
    """One wait for all of them. Created in the main thread, the only one."""

    def __init__(self, link: AgentLink | None) -> None:
        self._link = link
        self._came: deque[signal.Signals] = deque()
        self._heard: deque[dict[str, Any]] = deque()
        self._read_fd, self._write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._before_fd = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, self._note) for number in CAUGHT}

    def wait(self, timeout_s: float) -> None:
        """Wait until something arrives, or for ``timeout_s``."""
        if self._link is not None:
            self._link.tend()
            timeout_s = min(timeout_s, self._link.due_in_s())
        if self._came or self._heard:
            return
        waiter = select.poll()
        waiter.register(self._read_fd, select.POLLIN)
        agent_fd = self._link.fd if self._link is not None else None
        if agent_fd is not None:
            waiter.register(agent_fd, select.POLLIN)
        ready = {fd for fd, _what in waiter.poll(1000 * timeout_s)}
        if self._read_fd in ready:
            os.read(self._read_fd, 4096)
        if self._link is not None and agent_fd in ready:
            self._heard += self._link.read()

    def signals(self) -> list[signal.Signals]:
        """Signals that arrived since the last call, in order; SIGCHLD only wakes the launcher."""
        taken = []
        while self._came:
            taken.append(self._came.popleft())
        return [number for number in taken if number is not signal.SIGCHLD]

    def messages(self) -> Iterator[dict[str, Any]]:
        """The agent's messages; those that are not taken stay for the next caller."""
        while self._heard:
            yield self._heard.popleft()

    def close(self) -> None:
        """Restore the previous signal handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._before_fd)
        os.close(self._read_fd)
        os.close(self._write_fd)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._came.append(signal.Signals(number))
