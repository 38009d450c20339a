"""Dead letters: items that the controller will never accept, kept in ``dead-letters.jsonl`` for operators. At most two files of
:data:`MOST_BYTES`.

Jobs' statements are never kept there: any user can send any number of them, and the file is on the node's own disk."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

NAME = "dead-letters.jsonl"
MOST_BYTES = 4 * 1024 * 1024
"""A file that would grow beyond this becomes ``dead-letters.jsonl.1``, in place of the one before."""


class DeadLetters:
    """Writer of dead letters. Not thread-safe: only the sender writes."""

    def __init__(self) -> None:
        self._statements = 0

    def write(self, sequence: int, boot_id: str, items: Iterable[Mapping[str, Any]], folder: Path, reason: str) -> bool:
        """Write the items. False: the disk refused."""
        found = list(items)
        kept = [item for item in found if item.get("kind") != "statement"]
        if len(kept) < len(found):
            self._say(reason, len(found) - len(kept))
        if not kept:
            return True
        log.error("event=item_refused sequence=%d reason=%r effect=kept_in_dead_letters", sequence, reason)
        line = json.dumps({"sequence": sequence, "boot_id": boot_id, "reason": reason, "items": kept}) + "\n"
        try:
            _append(folder / NAME, line)
        except OSError as error:
            log.error("event=dead_letter_not_written path=%s error=%r", folder / NAME, str(error))
            return False
        return True

    def _say(self, reason: str, count: int) -> None:
        """Log the first one, then fewer and fewer: a user may cause any number."""
        before, self._statements = self._statements, self._statements + count
        if before == 0 or len(str(before)) < len(str(self._statements)) or before // 1000 < self._statements // 1000:
            log.warning("event=statement_not_taken reason=%r times=%d effect=dropped", reason, self._statements)


def _append(path: Path, line: str) -> None:
    """Append a line. Raises OSError."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        size = 0
    if size and size + len(line) > MOST_BYTES:
        path.replace(path.with_name(f"{NAME}.1"))
    with path.open("a", encoding="utf-8") as file:
        file.write(line)
