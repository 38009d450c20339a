"""Progress reports of the training to the node's agent, at most one a second; a no-op without an agent."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from holdfast_checkpoint import statements
from holdfast_checkpoint.base.runs import RunId, run_from_env

EVERY_S = 1.0


class ProgressReporter:
    """Reports step, phase, time of the last step and the number of groups. Never waits and never fails."""

    def __init__(
        self, run: RunId | None = None, socket_path: str | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._run = run or run_from_env(os.environ)
        self._teller = statements.Teller(socket_path, clock)
        self._clock = clock
        self._told_s = float("-inf")
        self._phase = ""

    @property
    def phase(self) -> str:
        """The last reported phase; empty: none was reported."""
        return self._phase

    def tell(self, step: int, phase: str, step_s: float, present: int, own_s: float = 0.0, quorum: int = 0) -> bool:
        """Report progress. False when it was too early, or there is no agent. A new phase is reported at once. ``own_s``: this group's
        computing time in the last step, without waits for others. ``quorum``: a new id means that groups joined or were lost."""
        now_s = self._clock()
        if phase == self._phase and now_s < self._told_s + EVERY_S:
            return False
        more: statements.StatementFields = {
            "phase": phase,
            "step_ms": round(1000 * step_s),
            "own_ms": round(1000 * own_s),
            "groups": present,
            "quorum": quorum,
        }
        told = self._teller.tell({**statements.progress(step, self._run), **more})
        if told:
            self._told_s, self._phase = now_s, phase
        return told

    def close(self) -> None:
        self._teller.close()
