"""Small reads of sysfs: a file that is not there, or that the driver will not answer, is None and never an error.

A thread that looks at the same counters again and again may keep them open (:func:`kept_open`): a read is then one call a file, not three.
The kernel renders a sysfs attribute again at each read from its start; one whose device is gone fails."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

_MOST_BYTES = 4096
"""An attribute of sysfs is at most one page."""
_NUMBER_BYTES = 64
_HERE = threading.local()
"""``files``: what the calling thread keeps open."""


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
    kept: _KeptFiles | None = getattr(_HERE, "files", None)
    if kept is not None:
        return kept.numbers(str(folder), wanted)
    try:
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return {}
    found: dict[str, int] = {}
    try:
        for name in wanted:
            with contextlib.suppress(OSError):
                value = _counter(_read_at(at, name))
                if value is not None:
                    found[name] = value
    finally:
        os.close(at)
    return found


def _read_at(folder_fd: int, name: str) -> bytes:
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder_fd)
    try:
        return os.read(fd, _NUMBER_BYTES)
    finally:
        os.close(fd)


def _first_line(data: bytes) -> str:
    return data.split(b"\n", 1)[0].decode("utf-8", "replace").strip()


def _counter(data: bytes) -> int | None:
    """The first line as a number; most files are one line of digits."""
    word = data.strip()
    return int(word) if word.isdigit() else _number(_first_line(data))


def _number(word: str | None) -> int | None:
    if not word:
        return None
    try:
        return int(word, 0)
    except ValueError:
        return None


@contextlib.contextmanager
def kept_open(most: int) -> Iterator[None]:
    """Within it, :func:`numbers` keeps the counters that the calling thread asks for open, ``most`` at most."""
    _HERE.files = kept = _KeptFiles(most)
    try:
        yield
    finally:
        del _HERE.files
        kept.close()


class _KeptFiles:
    """Open files of one thread. A folder that was recreated, or has other entries than before, is opened again."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._folders: dict[str, tuple[tuple[int, ...], dict[str, int]]] = {}
        """Folder → what it was when its files were opened, and their descriptors by name."""

    def numbers(self, folder: str, wanted: Iterable[str]) -> dict[str, int]:
        opened = self._opened(folder)
        if opened is None:
            return {}
        found: dict[str, int] = {}
        for name in wanted:
            try:
                data = self._read(folder, name, opened)
            except OSError:
                continue
            value = _counter(data)
            if value is not None:
                found[name] = value
        return found

    def close(self) -> None:
        for folder in list(self._folders):
            self._forget(folder)

    def _opened(self, folder: str) -> dict[str, int] | None:
        """None: there is no such folder."""
        was, opened = self._folders.get(folder, ((), {}))
        try:
            stat = os.stat(folder)
        except OSError:
            self._forget(folder)
            return None
        now = (stat.st_dev, stat.st_ino, stat.st_mtime_ns)
        if now != was:
            self._forget(folder)
            self._folders[folder] = (now, opened := {})
        return opened

    def _read(self, folder: str, name: str, opened: dict[str, int]) -> bytes:
        """One that does not answer is closed."""
        fd = opened.get(name)
        if fd is None:
            opened[name] = fd = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            self._left -= 1
        answered = False
        try:
            data = os.pread(fd, _NUMBER_BYTES, 0)
            answered = True
        finally:
            if not answered or self._left < 0:
                self._close(opened.pop(name))
        return data

    def _forget(self, folder: str) -> None:
        _, opened = self._folders.pop(folder, ((), {}))
        for fd in opened.values():
            self._close(fd)

    def _close(self, fd: int) -> None:
        os.close(fd)
        self._left += 1
