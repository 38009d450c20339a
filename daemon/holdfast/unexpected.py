"""Unexpected errors after which a process continues: logged once with traceback, counted, and remembered while they last.

Continuing is safe: the part of the process that failed makes no decisions and takes no actions until it succeeds again."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping

log = logging.getLogger(__name__)

_KEPT = 1000
"""Number of distinct errors remembered as logged; beyond it a traceback may be logged again."""


class Unexpected:
    """Failures by part of the process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logged: set[tuple[str, str]] = set()
        self._counts: Counter[str] = Counter()
        self._standing: dict[str, str] = {}

    def failed(self, part: str, error: BaseException, about: str = "") -> None:
        """Record a failure of this part of the process. ``about``: what it was working on, for the log."""
        text = f"{type(error).__name__}: {error}"[:300]
        with self._lock:
            self._counts[part] += 1
            self._standing[part] = text
            if len(self._logged) >= _KEPT:
                self._logged.clear()
            first = (part, text) not in self._logged
            self._logged.add((part, text))
        if first:
            log.error("event=unexpected_error part=%s about=%s error=%r", part, about or "-", text, exc_info=error)

    def passed(self, part: str) -> None:
        """Record a success of this part of the process."""
        if part not in self._standing:
            return
        with self._lock:
            self._standing.pop(part, None)
        log.info("event=unexpected_error_over part=%s", part)

    def standing(self) -> Mapping[str, str]:
        """Parts that failed when they last ran, with the error."""
        with self._lock:
            return dict(self._standing)

    def counts(self) -> Mapping[str, int]:
        """How often each part has failed since the process started."""
        with self._lock:
            return dict(self._counts)


_OF_THIS_PROCESS = Unexpected()
failed = _OF_THIS_PROCESS.failed
passed = _OF_THIS_PROCESS.passed
standing = _OF_THIS_PROCESS.standing
counts = _OF_THIS_PROCESS.counts
