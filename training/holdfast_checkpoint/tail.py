"""The last bytes of a file, read with the rights that this process has."""

from __future__ import annotations

import os
import stat

from holdfast_checkpoint.confined import kind_of
from holdfast_checkpoint.model import Unreadable

MOST_BYTES = 64 << 10


def tail(path: str, most_bytes: int = MOST_BYTES) -> str:
    """Its end as text, whole lines. Never waits for a FIFO, and reads no device. Raises Unreadable, OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable(f"it is {kind_of(status.st_mode)}, not a regular file")
        start = max(0, status.st_size - min(most_bytes, MOST_BYTES))
        data = os.pread(fd, MOST_BYTES, start)
    finally:
        os.close(fd)
    text = data.decode("utf-8", errors="replace")
    return text.partition("\n")[2] if start else text
