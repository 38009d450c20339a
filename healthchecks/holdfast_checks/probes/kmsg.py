"""Following the kernel log: the real ``/dev/kmsg`` or a file in its format. I/O only; nothing is judged here.

Made for a loop with a selector: :meth:`KmsgFollower.fileno` is readable when :meth:`KmsgFollower.read_available` has
news. No thread, no polling.
"""

from __future__ import annotations

import logging
import os
import select
import stat
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast_checks.probes.inotify import IN_ATTRIB, IN_CREATE, IN_MODIFY, IN_MOVE_SELF, IN_MOVED_TO, Inotify
from holdfast_checks.probes.kmsg_record import KernelRecord, parse

log = logging.getLogger(__name__)

_RECORD_BYTES = 16 * 1024
"""More than the longest record that the kernel hands out (CONSOLE_EXT_LOG_MAX and its successor are 8 KiB)."""
_CHUNK_BYTES = 256 * 1024
_MAX_LINE_BYTES = 64 * 1024
_KEPT_GAPS = 64
_MAX_RECORDS_A_CALL = 4096
"""A storm of kernel messages must not keep the caller's loop from turning; the descriptor stays readable."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far the log of one boot has been dealt with."""

    boot_id: str
    seq: int
    """Sequence number of the last record seen; -1: none yet."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Lost records: the log overran the reader, or was cut."""

    first: int
    """First sequence number missing."""
    count: int


class KmsgFollower:
    """Follows a kernel log from a cursor on.

    Without a cursor, or with one of another boot, what is in the log already is history: handed out, marked, not to be
    acted upon. With a cursor of this boot, records up to it are passed over and later ones are live, also those written
    while it was not followed. Raises OSError when the log cannot be opened."""

    def __init__(self, path: Path | str, boot_id: str, cursor: Cursor | None = None) -> None:
        self._boot_id = boot_id
        ours = cursor is not None and cursor.boot_id == boot_id
        self._last = cursor.seq if cursor is not None and ours else -1
        self._resumed = ours
        self.gaps: deque[Gap] = deque(maxlen=_KEPT_GAPS)
        """The latest gaps; the caller may empty it."""
        self._source = _open(Path(path))
        self._history_left = not ours

    def fileno(self) -> int:
        """A descriptor that becomes readable when there may be news."""
        return self._source.fileno()

    @property
    def cursor(self) -> Cursor:
        """What to keep for the next start: save it after the records so far were dealt with."""
        return Cursor(self._boot_id, self._last)

    def read_available(self) -> list[KernelRecord]:
        """Every record that is there now and has not been handed out; never blocks."""
        history = self._history_left
        records = [record for text in self._source.read() if (record := self._take(text, history)) is not None]
        self._history_left = history and not self._source.drained
        self._note_overruns()
        return records

    def close(self) -> None:
        """Give the descriptors back. May be called again."""
        self._source.close()

    def _take(self, text: str, history: bool) -> KernelRecord | None:
        record = parse(text, history=history)
        if record is None:
            if text.strip() and not text.startswith(" "):
                log.debug("kmsg_unreadable_record length=%d", len(text))
            return None
        if record.seq <= self._last:
            return None
        if (self._last >= 0 or self._resumed) and record.seq > self._last + 1:
            self._note_gap(self._last + 1, record.seq - self._last - 1)
        self._last = record.seq
        return record

    def _note_gap(self, first: int, count: int) -> None:
        self.gaps.append(Gap(first, count))
        log.warning("kmsg_gap first_seq=%d records=%d", first, count)

    def _note_overruns(self) -> None:
        if self._source.overruns:
            log.warning("kmsg_overrun times=%d", self._source.overruns)
            self._source.overruns = 0


def read_present(path: Path | str) -> list[KernelRecord]:
    """What is in a kernel log now, as history. Raises OSError."""
    follower = KmsgFollower(path, boot_id="")
    try:
        return follower.read_available()
    finally:
        follower.close()


class _CharDevice:
    """The real /dev/kmsg: one read, one record; EPIPE says that records were overwritten before they were read."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self.overruns = 0
        self.drained = True

    def fileno(self) -> int:
        return self._fd

    def read(self) -> Iterator[str]:
        for _ in range(_MAX_RECORDS_A_CALL):
            try:
                raw = os.read(self._fd, _RECORD_BYTES)
            except BlockingIOError:
                self.drained = True
                return
            except BrokenPipeError:
                self.overruns += 1  # the next read goes on with the oldest record that is left
                continue
            yield raw.decode("utf-8", "replace")
        self.drained = False

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_FILE_EVENTS = IN_MODIFY | IN_ATTRIB | IN_MOVE_SELF
"""IN_ATTRIB: the file lost its name (another took it) while we hold it open."""


class _RegularFile:
    """A file in the format of /dev/kmsg; may be appended to, cut, or replaced by another file of its name."""

    drained = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self.overruns = 0
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._offset = 0
        self._partial = b""
        self._inotify = Inotify()
        self._inotify.watch(path, _FILE_EVENTS)

    def fileno(self) -> int:
        return self._inotify.fileno()

    def read(self) -> Iterator[str]:
        self._inotify.drain()  # first: a write after this wakes the selector again
        yield from self._read_open_file()
        if self._replaced() and self._reopen():
            yield from self._read_open_file()

    def close(self) -> None:
        self._inotify.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _read_open_file(self) -> Iterator[str]:
        if os.fstat(self._fd).st_size < self._offset:
            log.info("kmsg_file_cut path=%s", self._path)
            self._offset, self._partial = 0, b""
        while chunk := os.pread(self._fd, _CHUNK_BYTES, self._offset):
            self._offset += len(chunk)
            *lines, self._partial = (self._partial + chunk).split(b"\n")
            if len(self._partial) > _MAX_LINE_BYTES:
                self._partial = b""
            for line in lines:
                yield line.decode("utf-8", "replace")

    def _replaced(self) -> bool:
        have = os.fstat(self._fd)
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return True
        return (now.st_ino, now.st_dev) != (have.st_ino, have.st_dev)

    def _reopen(self) -> bool:
        """Take the new file of the name; while there is none, wait for one to appear in the folder."""
        try:
            fresh = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._inotify.watch(self._path.parent, IN_CREATE | IN_MOVED_TO)
            return False
        log.info("kmsg_file_replaced path=%s", self._path)
        os.close(self._fd)
        self._fd, self._offset, self._partial = fresh, 0, b""
        self._inotify.watch(self._path, _FILE_EVENTS)
        return True


class _Pipe:
    """A FIFO in the format of /dev/kmsg; held open for writing too, so that it never ends."""

    drained = True

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._partial = b""
        self.overruns = 0

    def fileno(self) -> int:
        return self._fd

    def read(self) -> Iterator[str]:
        while select.select([self._fd], [], [], 0)[0]:
            *lines, self._partial = (self._partial + os.read(self._fd, _CHUNK_BYTES)).split(b"\n")
            for line in lines:
                yield line.decode("utf-8", "replace")

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _open(path: Path) -> _CharDevice | _RegularFile | _Pipe:
    mode = path.stat().st_mode
    if stat.S_ISCHR(mode):
        return _CharDevice(path)
    return _Pipe(path) if stat.S_ISFIFO(mode) else _RegularFile(path)
