"""Mutating API calls on disk, so that an emulator that is stopped and started has the same instances under the same ids.

Every entry is written before its call runs and carries the seed from which moto draws ids during the call; replaying the
entries in order gives the same ids, tags and times of transitions."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """One mutating call as it came in."""

    at: float
    """Unix time of the call."""
    seed: int
    region: str
    body: str
    service: str = "ec2"


class Journal:
    """Append-only JSON lines. Without a path nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._tail_checked = False

    def write(self, entry: Entry) -> None:
        if self._path is None:
            return
        with self._path.open("a", encoding="utf-8") as out:
            if not self._tail_checked:
                out.write(_missing_newline(self._path))
                self._tail_checked = True
            out.write(json.dumps(asdict(entry)) + "\n")

    def entries(self) -> Iterator[Entry]:
        """Entries in the order in which they were written; a torn last line (a kill) is passed over."""
        if self._path is None or not self._path.exists():
            return
        for number, line in enumerate(self._path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                yield Entry(**json.loads(line))
            except (ValueError, TypeError):
                log.warning("event=journal_line_unreadable file=%s line=%d", self._path, number)


def _missing_newline(path: Path) -> str:
    """A line end for a line that a kill tore, so that the next entry has a line of its own."""
    text = path.read_bytes() if path.exists() else b""
    return "\n" if text and not text.endswith(b"\n") else ""
