"""State file of a head-node process for the other processes there: a small file in ``run.dir``, which needs no store.

Through it, the controller and the actor of one machine see each other when the database is away, and detect that the other is gone."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast import __version__
from holdfast.model.parts import NotifierState, ProcessSeen, ProcessState
from holdfast_checks.whole_file import write_whole

log = logging.getLogger(__name__)

WRITE_EVERY_S = 2.0
_MOST_BYTES = 1 << 16


@dataclass
class StateWriter:
    """Writer: the process's own side."""

    path: Path
    clock_s: Callable[[], float]
    """Monotonic."""
    notifier: Callable[[], NotifierState] = NotifierState
    _written_s: float | None = None
    _failed: bool = False

    def beat(self, problem: str = "", held_back: str = "") -> None:
        """Record that the process is alive. Written at most every two seconds; a failed write is logged once.

        ``held_back``: the actor's own limit that holds steps back; empty: none."""
        now_s = self.clock_s()
        if self._written_s is not None and 0 <= now_s - self._written_s < WRITE_EVERY_S:
            return
        self._written_s = now_s
        state = ProcessState(now_s, __version__, problem, self.notifier(), held_back)
        try:
            write_whole(self.path, json.dumps(asdict(state), default=datetime.isoformat), 0o660)
        except OSError as error:
            if not self._failed:
                log.warning("event=state_not_written path=%s error=%r", self.path, str(error))
            self._failed = True
            return
        self._failed = False


@dataclass
class StateReader:
    """Reader: another process's side."""

    path: Path
    clock_s: Callable[[], float]
    _since_s: float | None = None

    def look(self) -> ProcessSeen:
        """As it is now."""
        now_s = self.clock_s()
        if self._since_s is None:
            self._since_s = now_s
        state = read(self.path)
        if state is None or state.at_s > now_s:  # the second: of another boot
            return ProcessSeen(now_s - self._since_s)
        return ProcessSeen(now_s - state.at_s, state)


def read(path: Path) -> ProcessState | None:
    """Read a state file. None: there is none, or it cannot be parsed."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(_MOST_BYTES))
        return _state(found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _state(found: dict[str, Any]) -> ProcessState:
    given = found.get("notifier") or {}
    notifier = NotifierState(int(given.get("addresses", 0)), str(given.get("error", "")))
    if given.get("failing_since"):
        notifier = replace(notifier, failing_since=datetime.fromisoformat(str(given["failing_since"])))
    release, problem, held_back = (str(found.get(name, "")) for name in ("release", "problem", "held_back"))
    return ProcessState(float(found["at_s"]), release, problem, notifier, held_back)
