"""Outcome of the control loop's last cycles, and its effects: what is shown, and whether systemd is to restart the process."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from holdfast import unexpected
from holdfast.model.errors import LeaderFencedOff, OutsideError

log = logging.getLogger(__name__)

TURN = "turn"
"""Part of this process that decides (:mod:`holdfast.unexpected`)."""
MOST_FAILED_TURNS = 60
"""Consecutive failed turns (about ten minutes) after which the process exits and systemd restarts it."""
SHOWN_AFTER = 5
"""Consecutive cycles that failed because of an external system, such as the store, before it is shown: then it is more than one retry."""
MOST_FAILED_CYCLES = 120
"""Consecutive failed cycles, for any reason (about two minutes), after which the watchdog is not fed and systemd restarts the process."""


@dataclass
class Cycles:
    """Written by the loop, read by the API's threads."""

    failed: int = 0
    """Cycles that have failed in a row, whatever the reason."""
    failed_turns: int = 0
    """Of these, turns that failed for a reason other than an external system."""
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
            case LeaderFencedOff():
                log.warning("event=fenced_off error=%r", self._why)
            case OutsideError():
                log.warning("event=cycle_failed in_a_row=%d error=%r", self.failed, self._why)
            case _:
                unexpected.failed(TURN, error.__cause__ or error)
                self.failed_turns += 1

    @property
    def may_live(self) -> bool:
        """Whether the process may continue; False: a restart may help."""
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
