"""A token bucket: how much at once, and how much a second for ever. Pure: every moment is handed in."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(slots=True)
class Bucket:
    """One bucket, full at first. A bucket that holds anything takes the whole amount and may fall below nothing."""

    burst: float
    per_s: float
    _left: float = field(default=math.inf, init=False)
    _at_s: float = field(default=-math.inf, init=False)

    def left(self, now_s: float) -> float:
        """What it holds now."""
        gained = max(now_s - self._at_s, 0.0) * self.per_s
        return min(self.burst, self._left + gained)

    def take(self, now_s: float, amount: float = 1.0) -> bool:
        """Take this much. False: it holds nothing, and nothing was taken."""
        if self.left(now_s) <= 0:
            return False
        self.spend(now_s, amount)
        return True

    def spend(self, now_s: float, amount: float) -> None:
        """Take this much in any case: it was used."""
        self._left, self._at_s = self.left(now_s) - amount, now_s

    def wait_s(self, now_s: float) -> float:
        """Seconds until it holds something; 0: now."""
        left = self.left(now_s)
        return 0.0 if left > 0 else (-left) / self.per_s + 0.001
