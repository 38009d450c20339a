"""A nudge between the controller and the actor on one machine: a Unix datagram that says nothing but "look".

It carries no content, so it needs no trust; a lost one costs half a second, because both sides look by themselves as well."""

from __future__ import annotations

import contextlib
import select
import socket
from pathlib import Path


class Bell:
    """The side that is woken."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(str(path))
        path.chmod(0o660)

    def fileno(self) -> int:
        return self._socket.fileno()

    def drain(self) -> None:
        """Take all nudges that wait."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(16)

    def wait(self, timeout_s: float) -> bool:
        """True: woken. False: the time is over."""
        ready, _, _ = select.select([self._socket], [], [], timeout_s)
        if ready:
            self.drain()
        return bool(ready)

    def close(self) -> None:
        self._socket.close()


class Ringer:
    """The side that wakes. Nobody listening is no error."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def ring(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendto(b"!", self._path)

    def close(self) -> None:
        self._socket.close()
