"""Journal of mutating API calls, so that a restarted emulator has the same instances under the same ids.

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
class JournalEntry:
    """One mutating call as received."""

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

    def write(self, entry: JournalEntry) -> None:
        if self._path is None:
            return
        with self._path.open("a", encoding="utf-8") as out:
            if not self._tail_checked:
                out.write(_missing_newline(self._path))
                self._tail_checked = True
            out.write(json.dumps(asdict(entry)) + "\n")

    def entries(self) -> Iterator[JournalEntry]:
        """Entries in the order in which they were written; an incomplete last line (after a kill) is skipped."""
        if self._path is None or not self._path.exists():
            return
        for number, line in enumerate(self._path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                yield JournalEntry(**json.loads(line))
            except (ValueError, TypeError):
                log.warning("event=journal_line_unreadable file=%s line=%d", self._path, number)


def _missing_newline(path: Path) -> str:
    """End an incomplete last line (after a kill), so that the next entry starts on a new line."""
    text = path.read_bytes() if path.exists() else b""
    return "\n" if text and not text.endswith(b"\n") else ""
