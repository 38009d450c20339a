"""Requests to leave: SIGUSR1 or SIGTERM from the launcher or from Slurm itself. Standard library only."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import FrameType

log = logging.getLogger(__name__)

REQUEUE = 85
"""Exit status of a group that left gracefully and wants to be requeued; it is listed in ``RequeueExit`` of slurm.conf."""
_FILE_BYTES_MAX = 65_536


@dataclass(frozen=True, slots=True)
class ElasticEvent:
    """Why a group is asked to leave, as far as known."""

    reason: str = "signal"
    deadline: str | None = None
    target: int | None = None


class SignalWatch:
    """Remembers signals. A previous handler is called as well, unless it would end the process."""

    def __init__(self, env: Mapping[str, str] = os.environ) -> None:
        self._file = env.get("HOLDFAST_EVENT_FILE")
        self._came: int | None = None
        self._before: dict[int, signal.Handlers] = {}

    def install(self) -> None:
        """Install handlers, from the main thread; in others Python allows none, and nothing is installed."""
        if threading.current_thread() is not threading.main_thread():
            log.warning("event=signals_not_watched reason='not the main thread'")
            return
        for number in (signal.SIGUSR1, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)  # type: ignore[assignment]

    def restore(self) -> None:
        """Restore the previous handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def detected(self) -> bool:
        """Whether a signal arrived. Cheap enough for every step."""
        return self._came is not None

    def event(self) -> ElasticEvent | None:
        """The signal that arrived, with the launcher's information about it."""
        if self._came is None:
            return None
        told = read_event(self._file) if self._file else None
        return told or ElasticEvent(signal.Signals(self._came).name)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = number
        before = self._before.get(number)
        if callable(before):
            before(number, frame)


def read_event(path: str) -> ElasticEvent | None:
    """The last event of a file of JSON lines; None when there is none that can be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _FILE_BYTES_MAX))
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(said, dict) and isinstance(reason := said.get("reason"), str):
            deadline, target = said.get("deadline"), said.get("target")
            return ElasticEvent(
                reason[:100],
                None if deadline is None else str(deadline)[:100],
                target if type(target) is int else None,
            )
    return None
