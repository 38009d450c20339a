"""Job gate: the controller's latest verdict on whether this node's prolog and epilog may fail. Safe to use from any thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

WORD_LASTS_S = 60.0
"""How long a verdict is valid, counted from the request. Later an operator may have decided otherwise (pause, acknowledge, resume the
node) without this agent having received it."""
KEEP_OFF = "keep_off"
"""Field of the answer to a heartbeat: the incident for which the controller drains this node."""


@dataclass(slots=True)
class JobGate:
    """Gate for jobs: open unless the leader's latest answer closed it a short while ago."""

    clock_s: Callable[[], float] = time.monotonic
    _word: tuple[str, float] | None = None
    """The incident, and when the heartbeat was sent whose answer named it."""

    def answered(self, body: Mapping[str, Any], asked_s: float) -> None:
        """Process the answer to a heartbeat that was sent at ``asked_s`` of the same clock. A standby's answer does not count."""
        if body.get("leader") is not True:
            return
        incident = body.get(KEEP_OFF)
        self._word = (incident[:200], asked_s) if isinstance(incident, str) and incident else None

    @property
    def closed_by(self) -> str | None:
        """The incident for which jobs are kept off; None: jobs may start."""
        word = self._word
        return word[0] if word is not None and self.clock_s() < word[1] + WORD_LASTS_S else None
