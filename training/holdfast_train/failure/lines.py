"""The TCP connections of a process group or a gRPC client, so that a call that is blocked on them can be ended.

Neither torch 2.13 (gloo's collectives) nor torchft 0.2.0 (its Manager's quorum requests) has a way to do so."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Lines:
    """Records which sockets a block of code opened, and can cut them: a call that waits on one, at either end, gets an error."""

    def __init__(self) -> None:
        self._held: dict[int, str] = {}

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Context manager around code that connects at once, as gloo does to all of its ranks."""
        before = _sockets()
        yield
        self._held.update({fd: inode for fd, inode in _sockets().items() if before.get(fd) != inode})

    def cut(self) -> None:
        """Cut the recorded sockets that are still the same; safe to repeat, and from any thread."""
        there = _sockets()
        for fd, inode in self._held.items():
            if there.get(fd) != inode:
                continue
            with suppress(OSError), socket.socket(fileno=os.dup(fd)) as line:
                line.getpeername()  # a listener has no peer, and gloo aborts the process when it is closed
                if line.family in (socket.AF_INET, socket.AF_INET6):  # not a socket that wakes a library's threads
                    line.shutdown(socket.SHUT_RDWR)
        self._held.clear()


def _sockets() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith("socket:"):
                found[int(name)] = target
    return found
