"""Errors that no code expects, where a process goes on all the same: logged with their trace once, counted, and remembered while they last.

What goes on is always the harmless part: a part of a process that fails decides and does nothing until it passes again."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping

log = logging.getLogger(__name__)

_KEPT = 1000
"""Different errors that are remembered as logged; beyond it a trace may come again."""


class Unexpected:
    """What failed, by part of the process. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logged: set[tuple[str, str]] = set()
        self._counts: Counter[str] = Counter()
        self._standing: dict[str, str] = {}

    def failed(self, part: str, error: BaseException, about: str = "") -> None:
        """This part of the process has failed now. ``about``: what it failed at, for the log."""
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
        """This part has done its work again."""
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
