"""Wakeup between the controller and the actor on one machine: a Unix datagram without content.

It carries no content, so it needs no trust. A lost one costs half a second, because both sides also poll."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import stat
from pathlib import Path

from holdfast.model.errors import ConfigError
from holdfast.unix_socket import bound

_MOST_BYTES = 1 << 16


class Alone:
    """A lock that one process of a kind holds for its lifetime on this machine. Its file may hold a few lines for other processes."""

    def __init__(self, path: Path) -> None:
        """Take the lock. Raises ConfigError when another process holds it, or when the path is not a lock file."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o660)
        except OSError as error:
            raise ConfigError(f"{path} cannot be locked: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise ConfigError(f"{path} is no plain file: remove it, then start again")
        self._file = os.fdopen(descriptor, "r+", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise ConfigError(f"{path} is locked: another process of this kind runs here; stop it first") from error

    def read(self) -> str:
        """Content of the file; empty where it is not valid text."""
        try:
            return os.pread(self._file.fileno(), _MOST_BYTES, 0).decode()
        except UnicodeDecodeError:
            return ""

    def write(self, text: str) -> None:
        """Replace the content. For a moment a reader may see the new start with the old end."""
        data = text.encode()
        os.pwrite(self._file.fileno(), data, 0)
        os.ftruncate(self._file.fileno(), len(data))

    def release(self) -> None:
        """Release the lock, as the end of the process does."""
        self._file.close()


class Bell:
    """Receiving side of the wakeup."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        self._socket = bound(path, 0o660, socket.SOCK_DGRAM)

    def fileno(self) -> int:
        return self._socket.fileno()

    def drain(self) -> None:
        """Discard all pending wakeups."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(16)

    def wait(self, timeout_s: float) -> bool:
        """Wait for a wakeup. True: woken. False: timed out."""
        rung = select.poll()
        rung.register(self._socket, select.POLLIN)
        ready = bool(rung.poll(1000 * timeout_s))
        if ready:
            self.drain()
        return ready

    def close(self) -> None:
        self._socket.close()


class Ringer:
    """Sending side of the wakeup. It is no error if no process listens."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def ring(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendto(b"!", self._path)

    def close(self) -> None:
        self._socket.close()
