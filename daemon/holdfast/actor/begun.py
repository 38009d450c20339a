"""Steps that this actor has started, recorded in its own file.

A started step is finished without the checks that a new one starts with, because it may be half done. The store also records that a step
was started, but anyone who can write the store could claim this of any step, or of one that ended long ago. So the actor trusts only its
own record, and only for a short time."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from holdfast.actor.own_file import ActorFile
from holdfast.model.actions.action import Action, Intent

_MOST = 4096
"""Far more than are ever under way; the oldest is forgotten and then checked like a new one."""
_KEPT_S = 900.0
"""Longer than a restart of the actor takes. A step that was started earlier than this is checked like a new one."""


@dataclass
class Begun:
    """Record of started steps. Safe to use from many threads; raises nothing."""

    folder: Path | None
    """The actor's own; None: nothing is written, and a restart forgets."""
    wall_s: Callable[[], float] = time.time
    _kept: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Key → digest of the action, and when it began, oldest first."""
    _lock: Lock = field(default_factory=Lock)
    _file: ActorFile = field(init=False)

    def __post_init__(self) -> None:
        self._file = ActorFile(
            None if self.folder is None else self.folder / "begun.json",
            "begun_steps_not_written",
            "after a restart, started steps are checked like new ones",
            "steps that the actor had started are checked like new ones",
        )
        if self.folder is not None:
            self._kept = self._file.read(_kept) or {}

    def note(self, intent: Intent) -> None:
        """Record that the step is about to start."""
        with self._lock:
            self._kept.pop(intent.key, None)
            self._kept[intent.key] = _digest(intent.action), self.wall_s()
            while len(self._kept) > _MOST:
                del self._kept[next(iter(self._kept))]
            self._file.write(self._kept)

    def has(self, intent: Intent) -> bool:
        """Whether exactly this action of this key was started a short while ago and has not ended."""
        with self._lock:
            digest, at_s = self._kept.get(intent.key, ("", 0.0))
        return digest == _digest(intent.action) and abs(self.wall_s() - at_s) < _KEPT_S

    def over(self, intent: Intent) -> None:
        """Forget the step: its outcome is in the store."""
        with self._lock:
            if self._kept.pop(intent.key, None) is not None:
                self._file.write(self._kept)


def _digest(action: Action) -> str:
    plain = json.dumps([type(action).__name__, asdict(action)], sort_keys=True, default=_plain)
    return hashlib.sha256(plain.encode()).hexdigest()


def _plain(value: object) -> object:
    return sorted(value) if isinstance(value, frozenset | set) else str(value)


def _kept(found: Any) -> dict[str, tuple[str, float]]:
    if not isinstance(found, dict):
        raise TypeError("not key → digest and time")
    return {str(key): (str(digest), float(at_s)) for key, (digest, at_s) in found.items()}
