"""Owner of a subordinate user id, by /etc/subuid (subuid(5)). I/O only.

A user can create processes with such ids outside of any user namespace, too, with files that are set-uid to one. Ranges from a libsubid
plug-in (``subid:`` in nsswitch.conf) are not in the file and are not seen: an id without a known owner is counted separately."""

from __future__ import annotations

import os
from bisect import bisect_right
from pathlib import Path

MOST_BYTES = 1 << 20
"""About 40,000 lines; the rest of a longer file is ignored."""
FILE = Path("/etc/subuid")


class SubordinateIds:
    """The file's ranges, read again when it has changed."""

    def __init__(self, file: Path = FILE) -> None:
        self._file = file
        self._seen: tuple[int, int, int] | None = None
        self._ranges: list[tuple[int, int, str]] = []

    def owner(self, uid: int) -> str | None:
        """The owner of the subordinate id, as the file names it (a name, or a uid); None: no owner, or the file cannot be read."""
        self._read_again()
        at = bisect_right(self._ranges, uid, key=lambda each: each[0])
        if not at:
            return None
        _first, last, owner = self._ranges[at - 1]
        return owner if uid <= last else None

    def _read_again(self) -> None:
        try:
            status = os.stat(self._file)
            seen = (status.st_ino, status.st_size, status.st_mtime_ns)
            if seen == self._seen:
                return
            with self._file.open("rb", buffering=0) as file:
                text = file.read(MOST_BYTES).decode("utf-8", "surrogateescape")
        except OSError:
            self._seen, self._ranges = None, []
            return
        self._seen, self._ranges = seen, ranges(text)


def ranges(text: str) -> list[tuple[int, int, str]]:
    """First id, last id and owner of each line ``OWNER:FIRST:COUNT``, in order; other lines are skipped. Pure."""
    found = []
    for line in text.split("\n"):
        owner, _, rest = line.strip().partition(":")
        first, _, count = rest.partition(":")
        if owner and _is_number(first) and _is_number(count) and int(count):
            found.append((int(first), int(first) + int(count) - 1, owner))
    return sorted(found)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10
