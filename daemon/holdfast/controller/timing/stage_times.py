"""Durations of the stages of turns: summed for the metrics, and logged where one is slow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from holdfast.decisions.turn import STAGES
from holdfast.model.book import Change

log = logging.getLogger(__name__)

SLOW_S = 1.0
"""A stage that takes longer is logged. A whole turn over 1,000 nodes takes a fraction of it (``docs/benchmarks.md``)."""


@dataclass
class StageTimes:
    """Durations by stage. Written by the loop's turns, read by the API's threads."""

    clock_s: Callable[[], float]
    """Monotonic."""
    spent_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    """Seconds since the start, by name of the stage."""

    def around(self, name: str, run: Callable[[], Change]) -> Change:
        """Run one stage (:data:`holdfast.decisions.turn.StageRunner`); what it raises passes through."""
        began_s = self.clock_s()
        try:
            return run()
        finally:
            took_s = self.clock_s() - began_s
            self.spent_s[name] += took_s
            if took_s > SLOW_S:
                log.warning("event=slow_stage stage=%s took_s=%.1f", name, took_s)

    def seen(self) -> Mapping[str, float]:
        """A copy of the sums."""
        return dict(self.spent_s)
