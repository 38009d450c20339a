"""Which steps this actor has begun itself, in a file of its own.

A step that was begun is ended, without the looks that a new one begins with: it may be half done. That a step was begun the store says, and
who writes the store could say it of any step; so the actor believes its own memory alone."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock

from holdfast.model.action import Action, Intent
from holdfast.whole_file import write_whole
from holdfast_checks.aside import put_aside

log = logging.getLogger(__name__)

_FILE = "begun.json"
_MOST_BYTES = 1 << 20
_MOST = 4096
"""Far more than are ever under way; the oldest is forgotten, and looked at again like a new one."""


@dataclass
class Begun:
    """The memory. Safe to use from many threads; raises nothing."""

    folder: Path | None
    """The actor's own; None: nothing is written, and a restart forgets."""
    _kept: dict[str, str] = field(default_factory=dict)
    """Key → digest of the action, oldest first."""
    _lock: Lock = field(default_factory=Lock)
    _not_written: bool = False

    def __post_init__(self) -> None:
        if self.folder is not None:
            self._kept = dict(_read(self.folder / _FILE))

    def note(self, intent: Intent) -> None:
        """It is about to begin."""
        with self._lock:
            self._kept[intent.key] = _digest(intent.action)
            while len(self._kept) > _MOST:
                del self._kept[next(iter(self._kept))]
            self._write()

    def has(self, intent: Intent) -> bool:
        """Whether this very action of this key was begun, and has not ended."""
        with self._lock:
            return self._kept.get(intent.key) == _digest(intent.action)

    def over(self, intent: Intent) -> None:
        """How it ended is in the store."""
        with self._lock:
            if self._kept.pop(intent.key, None) is not None:
                self._write()

    def _write(self) -> None:
        if self.folder is None:
            return
        try:
            write_whole(self.folder / _FILE, json.dumps(self._kept), 0o600)
        except OSError as error:
            if not self._not_written:
                log.error(
                    "event=begun_steps_not_written error=%r effect='after a restart what was begun is looked at like new'",
                    str(error),
                )
            self._not_written = True
            return
        self._not_written = False


def _digest(action: Action) -> str:
    plain = json.dumps([type(action).__name__, asdict(action)], sort_keys=True, default=_plain)
    return hashlib.sha256(plain.encode()).hexdigest()


def _plain(value: object) -> object:
    return sorted(value) if isinstance(value, frozenset | set) else str(value)


def _read(path: Path) -> Iterable[tuple[str, str]]:
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise ValueError("it is too long")
        found = json.loads(raw)
        if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
            raise TypeError("not key → digest")
        return tuple(found.items())
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError, RecursionError) as error:
        put_aside(path, error, "what the actor had begun is looked at like new", "look whether the disk is well")
        return ()
