"""A small JSON file in the actor's own folder, which no other service can write: its state across restarts."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from holdfast_checks.aside import put_aside
from holdfast_checks.whole_file import write_whole

T = TypeVar("T")

log = logging.getLogger(__name__)

_MOST_BYTES = 1 << 20


@dataclass
class ActorFile:
    """One file. Raises nothing; not safe to write from several threads at once."""

    path: Path | None
    """None: nothing is kept across restarts."""
    event: str
    """Log event for a failed write."""
    unwritten: str
    """Effect of a failed write, for operators."""
    unread: str
    """Effect of a failed read, for operators."""
    _not_written: bool = field(default=False, init=False)

    def read(self, parse: Callable[[Any], T]) -> T | None:
        """The parsed content; None: there is no file, or an invalid one, which is moved aside."""
        if self.path is None:
            return None
        try:
            with self.path.open("rb") as file:
                raw = file.read(_MOST_BYTES + 1)
            if len(raw) > _MOST_BYTES:
                raise ValueError("it is too long")
            return parse(json.loads(raw))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            put_aside(self.path, error, self.unread, "check the disk")
            return None

    def write(self, value: object) -> None:
        """Replace the content. A failure is logged once until a write succeeds again."""
        if self.path is None:
            return
        try:
            write_whole(self.path, json.dumps(value), 0o600)
        except OSError as error:
            if not self._not_written:
                log.error("event=%s error=%r effect=%r", self.event, str(error), self.unwritten)
            self._not_written = True
            return
        self._not_written = False
