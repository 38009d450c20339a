"""Safe reading of an untrusted directory: by descriptors only, never through a link, with limits on everything.

Each name is checked before it is opened and again after, below a descriptor of its folder. So a directory that is
replaced by a link during the walk leads nowhere else: the walk continues in the folder that it opened.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from holdfast_checkpoint.base.model import CheckpointVerdict

_OPEN_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_HARMLESS_ERRORS = {errno.ENOENT, errno.ENOTDIR}


class Bad(Exception):
    """Raised to end the verification of one candidate, with a verdict and its reason."""

    def __init__(self, verdict: CheckpointVerdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict = verdict
        self.reason = reason


class OutOfTime(Bad):
    """The deadline of the whole walk has passed."""

    def __init__(self) -> None:
        super().__init__(CheckpointVerdict.UNREADABLE, "not read before the deadline")


class TooManyEntries(Bad):
    """The walk may read no more directory entries."""


def torn(reason: str) -> Bad:
    return Bad(CheckpointVerdict.TORN, reason)


def refused(reason: str) -> Bad:
    return Bad(CheckpointVerdict.REFUSED, reason)


@dataclass(frozen=True)
class Limits:
    """Limits of one walk."""

    deadline_s: float = 30.0
    entries: int = 50_000
    """Directory entries read in total. A checkpoint of 4,096 ranks has about 10,000 files."""
    small_file_bytes: int = 64 << 20
    """Largest file that is read whole (manifests, ``.metadata``, indexes, zip directories)."""
    digest_bytes: int = 256 << 20
    """Digests are recomputed unasked only up to this size; reading terabytes would delay the restart."""


@dataclass
class Walk:
    """Remaining limits of a walk, and whose files are accepted: the user's own and root's, or any user's."""

    limits: Limits = field(default_factory=Limits)
    any_owner: bool = False
    clock: Callable[[], float] = time.monotonic
    _ends_at: float = 0.0
    _entries_left: int = 0
    _owners: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self._ends_at = self.clock() + self.limits.deadline_s
        self._entries_left = self.limits.entries
        self._owners = frozenset({0, os.geteuid()})

    def tick(self) -> None:
        """Raise OutOfTime once the deadline has passed."""
        if self.clock() > self._ends_at:
            raise OutOfTime

    def entry(self) -> None:
        self.tick()
        self._entries_left -= 1
        if self._entries_left < 0:
            raise TooManyEntries(CheckpointVerdict.UNREADABLE, f"more than {self.limits.entries} entries")

    def at_most(self, entries: int) -> Walk:
        """A part of this walk that reads at most this many directory entries, with the same deadline."""
        part = Walk(replace(self.limits, entries=min(entries, self.limits.entries)), self.any_owner, self.clock)
        part._ends_at = self._ends_at
        return part

    def takes(self, status: os.stat_result) -> bool:
        """Whether files of this owner are accepted: the user's own, root's, or any user's."""
        return self.any_owner or status.st_uid in self._owners

    def take(self, status: os.stat_result, name: str) -> None:
        """Raise Bad when the file belongs to another user."""
        if not self.takes(status):
            raise refused(f"{printable(name)} belongs to uid {status.st_uid}")


@dataclass(frozen=True)
class OpenFile:
    """A regular file, open for reading."""

    fd: int
    name: str
    size_bytes: int
    mtime_s: float
    walk: Walk

    def read_at(self, offset: int, length: int) -> bytes:
        """Read exactly ``length`` bytes. Raises Bad(TORN) when the file is shorter."""
        self.walk.tick()
        if offset < 0 or length < 0 or offset + length > self.size_bytes:
            raise torn(f"{self.name} is cut short")
        parts: list[bytes] = []
        while length:
            part = os.pread(self.fd, min(length, 1 << 20), offset)
            if not part:
                raise torn(f"{self.name} is cut short")
            parts.append(part)
            offset += len(part)
            length -= len(part)
            self.walk.tick()
        return b"".join(parts)

    def read_small(self) -> bytes:
        """Read the whole file. Raises Bad when it is larger than a small file may be."""
        if self.size_bytes > self.walk.limits.small_file_bytes:
            raise Bad(
                CheckpointVerdict.UNREADABLE, f"{self.name} is larger than {self.walk.limits.small_file_bytes} bytes"
            )
        return self.read_at(0, self.size_bytes)


@dataclass(frozen=True)
class OpenFolder:
    """An open directory."""

    fd: int
    walk: Walk
    mtime_s: float = 0.0

    def names(self) -> list[str]:
        """Names of the entries, in order. Raises Bad when there are too many."""
        found: list[str] = []
        with _translated("the folder"), os.scandir(self.fd) as entries:
            for entry in entries:
                self.walk.entry()
                found.append(entry.name)
        return sorted(found)

    def status(self, name: str) -> os.stat_result | None:
        """Status of the entry, without following a link; None when there is none."""
        self.walk.tick()
        check_name(name)
        with _translated(name):
            try:
                return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
            except OSError as error:
                if error.errno in _HARMLESS_ERRORS:
                    return None
                raise

    def alias(self, name: str) -> bool:
        """Whether the name is a link to something else in this very folder: ``latest.pt -> ckpt_500.pt``."""
        with _translated(name):
            target = os.readlink(name, dir_fd=self.fd)
        if not target.isprintable() or target.removeprefix("./").count("/"):
            return False
        status = self.status(target.removeprefix("./")) if target.removeprefix("./") not in {"", ".", ".."} else None
        return status is not None and not stat.S_ISLNK(status.st_mode)

    @contextmanager
    def folder(self, name: str) -> Iterator[OpenFolder]:
        """Open a folder below this one. Raises Bad when it is missing, something else, or another user's."""
        fd, status = self._open(name, _OPEN_DIR, stat.S_ISDIR, "folder")
        try:
            yield OpenFolder(fd, self.walk, status.st_mtime)
        finally:
            os.close(fd)

    @contextmanager
    def file(self, name: str) -> Iterator[OpenFile]:
        """Open a regular file. Raises Bad when it is missing, something else, or another user's."""
        fd, status = self._open(name, _OPEN_FILE, stat.S_ISREG, "regular file")
        try:
            with _translated(name):
                yield OpenFile(fd, name, status.st_size, status.st_mtime, self.walk)
        finally:
            os.close(fd)

    def _open(self, name: str, flags: int, wanted: Callable[[int], bool], what: str) -> tuple[int, os.stat_result]:
        before = self.status(name)
        if before is None:
            raise torn(f"{name} is missing")
        if not wanted(before.st_mode):
            raise refused(f"{name} is {kind_of(before.st_mode)}, not a {what}")
        with _translated(name):
            fd = os.open(name, flags, dir_fd=self.fd)
        try:
            status = os.fstat(fd)
            if (status.st_dev, status.st_ino) != (before.st_dev, before.st_ino) or not wanted(status.st_mode):
                raise refused(f"{name} was swapped while it was opened")
            self.walk.take(status, name)
        except BaseException:
            os.close(fd)
            raise
        return fd, status


@contextmanager
def open_root(directory: str, walk: Walk) -> Iterator[OpenFolder]:
    """Open the checkpoint directory itself. Links in its path are allowed, since the caller chose it.

    Raises FileNotFoundError when there is none, Bad(UNREADABLE) when it cannot be read, Bad(REFUSED) if it is not a directory."""
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except NotADirectoryError as error:
        raise refused("not a directory") from error
    except (OSError, ValueError) as error:
        raise Bad(CheckpointVerdict.UNREADABLE, _reason(error)) from error
    try:
        yield OpenFolder(fd, walk, os.fstat(fd).st_mtime)
    finally:
        os.close(fd)


def check_name(name: str) -> None:
    """Raise Bad(REFUSED) for a name that is a path, or that cannot be printed unchanged."""
    if name in {"", ".", ".."} or "/" in name or "\0" in name:
        raise refused(f"name {printable(name)} leaves the folder")
    if not name.isprintable():
        raise refused(f"name {printable(name)} has characters that cannot be shown")


def printable(text: str) -> str:
    """The text with control sequences for terminals escaped, at most 200 characters."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:200])


def kind_of(mode: int) -> str:
    """Name for the kind of a directory entry."""
    for test, word in (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISREG, "a regular file"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
    ):
        if test(mode):
            return word
    return "a device"


@contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _HARMLESS_ERRORS:
            raise torn(f"{printable(name)} is missing") from error
        if error.errno == errno.ELOOP:
            raise refused(f"{printable(name)} is a symbolic link") from error
        raise Bad(CheckpointVerdict.UNREADABLE, f"{printable(name)}: {_reason(error)}") from error


def _reason(error: OSError | ValueError) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
