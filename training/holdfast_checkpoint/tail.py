"""The last bytes of a file, read with the rights that this process has."""

from __future__ import annotations

import os
import stat
import time
from typing import NamedTuple

from holdfast_checkpoint.base.confined import kind_of
from holdfast_checkpoint.base.model import Unreadable

MOST_BYTES = 64 << 10


class Tail(NamedTuple):
    """The end of a file."""

    text: str
    """Complete lines."""
    size_bytes: int
    """Size of the file."""
    quiet_s: float
    """How long ago it was last written to, by this machine's clock and the file system's."""


def tail(path: str, from_byte: int = 0, most_bytes: int = MOST_BYTES) -> Tail:
    """Read the end of the file, starting at ``from_byte`` at the earliest; all of it if the file is shorter by now. Never waits for a
    FIFO, and reads no device. Raises Unreadable, OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable(f"it is {kind_of(status.st_mode)}, not a regular file")
        start = max(0, status.st_size - min(most_bytes, MOST_BYTES))
        begun = from_byte if start < from_byte <= status.st_size else 0
        start = max(start, begun)
        data = os.pread(fd, MOST_BYTES, start)
    finally:
        os.close(fd)
    text = data.decode("utf-8", errors="replace")
    whole = text if start == begun else text.partition("\n")[2]
    return Tail(whole, status.st_size, max(0.0, time.time() - status.st_mtime))
