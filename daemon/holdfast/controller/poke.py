"""A nudge between the controller and the actor on one machine: a Unix datagram that says nothing but "look".

It carries no content, so it needs no trust; a lost one costs half a second, because both sides look by themselves as well."""

from __future__ import annotations

import contextlib
import fcntl
import select
import socket
from pathlib import Path

from holdfast.model.errors import ConfigError


class Alone:
    """A lock that one process of a kind holds on this machine: two of them under one name in the lease would both lead."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError when another process holds it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise ConfigError(f"{path} is locked: another process of this kind runs here; stop it first") from error


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
