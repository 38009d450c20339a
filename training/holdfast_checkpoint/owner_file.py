"""A small text file of a user's, added to with the rights that this process has: it may be a trap that the user has set."""

from __future__ import annotations

import os
import stat

from holdfast_checkpoint.base.confined import kind_of
from holdfast_checkpoint.base.model import Unreadable

MOST_BYTES = 64 << 10
"""Largest size of the file."""
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def add_once(folder: str, name: str, mark: str, text: str) -> bool:
    """Append the text to the file, unless the file holds the mark already; whether it was written. A new file is for its owner alone.

    Never follows a link as the last part, waits for no FIFO, writes to no device, to no file of another user and to none with a further
    name. Raises Unreadable, OSError: nothing was written then."""
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        file = _opened(name, at)
    finally:
        os.close(at)
    try:
        return _added(file, mark.encode(), text.encode())
    finally:
        os.close(file)


def _opened(name: str, at: int) -> int:
    try:
        return os.open(name, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=at)
    except FileExistsError:
        return os.open(name, _FLAGS, dir_fd=at)


def _added(file: int, mark: bytes, text: bytes) -> bool:
    seen = os.fstat(file)
    if not stat.S_ISREG(seen.st_mode):
        raise Unreadable(f"it is {kind_of(seen.st_mode)}, not a regular file")
    if seen.st_uid != os.geteuid() or seen.st_nlink != 1:
        raise Unreadable("it belongs to another user, or has a second name")
    if mark in os.pread(file, MOST_BYTES, 0):
        return False
    if seen.st_size + len(text) > MOST_BYTES:
        raise Unreadable(f"it is full: nothing is added beyond {MOST_BYTES >> 10} KiB")
    if os.write(file, text) != len(text):
        raise Unreadable("only a part could be written")
    return True
