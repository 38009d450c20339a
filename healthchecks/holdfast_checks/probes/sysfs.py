"""Small reads of sysfs: a file that is not there, or that the driver will not answer, is None and never an error."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

_MOST_BYTES = 4096
"""An attribute of sysfs is at most one page."""


def names(folder: Path | str) -> tuple[str, ...]:
    """Entries of a folder, sorted; none where it is not there."""
    try:
        return tuple(sorted(os.listdir(folder)))
    except OSError:
        return ()


def text(path: Path | str) -> str | None:
    """First line of an attribute without its end; None: not there, or not answered (a netdev that is down has no carrier)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _first_line(os.read(fd, _MOST_BYTES))
    except OSError:
        return None
    finally:
        os.close(fd)


def number(path: Path | str) -> int | None:
    """A whole number, decimal or ``0x…``; None: not there, not answered, or no number."""
    return _number(text(path))


def link_name(path: Path | str) -> str | None:
    """Last part of what a link leads to (``device/driver`` → ``efa``); None: there is no such link."""
    try:
        return os.path.basename(os.readlink(path))
    except OSError:
        return None


def numbers(folder: Path | str, wanted: Iterable[str]) -> dict[str, int]:
    """Those of the wanted counters that the folder has and that answer; the others are left out."""
    try:
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return {}
    found: dict[str, int] = {}
    try:
        for name in wanted:
            with contextlib.suppress(OSError):
                value = _number(_first_line(_read_at(at, name)))
                if value is not None:
                    found[name] = value
    finally:
        os.close(at)
    return found


def _read_at(folder_fd: int, name: str) -> bytes:
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder_fd)
    try:
        return os.read(fd, 64)
    finally:
        os.close(fd)


def _first_line(data: bytes) -> str:
    return data.split(b"\n", 1)[0].decode("utf-8", "replace").strip()


def _number(word: str | None) -> int | None:
    if not word:
        return None
    try:
        return int(word, 0)
    except ValueError:
        return None
