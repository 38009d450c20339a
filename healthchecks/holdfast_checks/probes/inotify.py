"""Just enough inotify, through ctypes, so that watching a file costs nothing while nothing happens."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

IN_MODIFY = 0x2
IN_ATTRIB = 0x4
IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_MOVE_SELF = 0x800

_READ_BYTES = 64 * 1024


class Inotify:
    """One inotify descriptor. Raises OSError where the kernel refuses (limits, file system)."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def fileno(self) -> int:
        """Readable when something happened."""
        return self._fd

    def watch(self, path: Path, mask: int) -> None:
        """Watch a file or a folder."""
        self._checked(self._libc.inotify_add_watch(self._fd, os.fsencode(path), mask))

    def drain(self) -> None:
        """Forget what happened so far."""
        try:
            while os.read(self._fd, _READ_BYTES):
                pass
        except BlockingIOError:
            return

    def close(self) -> None:
        """Give the descriptor back. May be called again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @staticmethod
    def _checked(answer: int) -> int:
        if answer < 0:
            code = ctypes.get_errno()
            raise OSError(code, f"inotify: {os.strerror(code)}")
        return answer
