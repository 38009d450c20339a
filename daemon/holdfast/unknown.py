"""Values and documents of other releases that this one does not know: read as a safe value, logged once, counted."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeVar

from holdfast_checks.words import known, safe

log = logging.getLogger(__name__)
E = TypeVar("E", bound=StrEnum)

_KEPT = 10_000
"""Number of distinct values and documents remembered as logged; beyond it a line may be logged again."""


class _Seen:
    """What was logged already, and counters by kind. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._once: set[tuple[str, ...]] = set()
        self._counts: Counter[str] = Counter()
        self.unreadable_since: datetime | None = None

    def first(self, what: str, *which: str) -> bool:
        """Count an occurrence. Returns whether to log it."""
        with self._lock:
            if len(self._once) >= _KEPT:
                self._once.clear()
            if (what, *which) in self._once:
                return False
            self._once.add((what, *which))
            self._counts[what] += 1
            return True

    def counts(self) -> Mapping[str, int]:
        with self._lock:
            return dict(self._counts)


_SEEN = _Seen()


def read_word(kind: type[E], said: object, where: str, instead: E | None = None) -> E | None:
    """Parse an enum's value; one that this release does not know becomes the safe value (:mod:`holdfast_checks.words`).

    ``where``: field, for the log; ``instead``: this field's safe value, if it differs from the enum's.
    Raises KeyError for an enum that declares no safe value."""
    word = known(kind, said)
    if word is not None:
        return word
    instead = instead or safe(kind)
    if _SEEN.first("word", kind.__name__, str(said)[:100], where):
        read_as = instead.value if instead is not None else "none"
        log.warning(
            "event=unknown_word kind=%s word=%r where=%s read_as=%s", kind.__name__, str(said)[:100], where, read_as
        )
    return instead


def set_aside(table: str, key: str, why: str) -> None:
    """Log once that a document cannot be read; ``docs/upgrade.md`` describes what is used in its place."""
    if _SEEN.first(table, key):
        _SEEN.unreadable_since = _SEEN.unreadable_since or datetime.now(UTC)
        log.error("event=unreadable_document table=%s key=%s reason=%r", table, key, why[:500])


def counts() -> Mapping[str, int]:
    """How many different unknown words (``word``) and unreadable documents (by table) this process has met."""
    return _SEEN.counts()


def unreadable() -> Mapping[str, int]:
    """How many different documents this process could not read, by table."""
    return {table: count for table, count in _SEEN.counts().items() if table != "word"}


def unreadable_since() -> datetime | None:
    """When the first of them was seen. None: none was."""
    return _SEEN.unreadable_since
