"""How the control loop's last cycles ended, and what follows: what is shown, and whether systemd is to start a fresh process."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from holdfast import unexpected
from holdfast.model.errors import FencedOff, OutsideError

log = logging.getLogger(__name__)

TURN = "turn"
"""Part of this process that decides (:mod:`holdfast.unexpected`)."""
MOST_FAILED_TURNS = 60
"""In a row: about ten minutes. Then the process ends, and systemd starts a fresh one."""
SHOWN_AFTER = 5
"""Cycles in a row that failed by something outside, such as the store: then it is more than a call that is repeated."""
MOST_FAILED_CYCLES = 120
"""In a row, whatever the reason: about two minutes. Then the watchdog is no longer fed, and systemd starts a fresh process."""


@dataclass
class Cycles:
    """Written by the loop, read by the API's threads."""

    failed: int = 0
    """Cycles that have failed in a row, whatever the reason."""
    failed_turns: int = 0
    """Of these, turns that failed for another reason than the outside."""
    _why: str = ""

    def passed(self) -> None:
        """A cycle is complete."""
        self.failed = self.failed_turns = 0
        unexpected.passed(TURN)

    def ended(self, error: Exception) -> None:
        """A cycle has failed."""
        self.failed += 1
        self._why = str(error)
        match error:
            case FencedOff():
                log.warning("event=fenced_off error=%r", self._why)
            case OutsideError():
                log.warning("event=cycle_failed in_a_row=%d error=%r", self.failed, self._why)
            case _:
                unexpected.failed(TURN, error.__cause__ or error)
                self.failed_turns += 1

    @property
    def may_live(self) -> bool:
        """False: a fresh process may do better."""
        return self.failed < MOST_FAILED_CYCLES

    @property
    def trouble(self) -> str | None:
        """Why nothing is decided at present; None: turns pass."""
        if self.failed_turns:
            failing = unexpected.standing().get(TURN, "")
            return f"the last {self.failed_turns} turns failed, nothing is decided: {failing}"
        if self.failed >= SHOWN_AFTER:
            return f"the last {self.failed} cycles failed, nothing is decided: {self._why}"
        return None
