"""A token bucket: burst and sustained rate per second. Pure: the caller passes every time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(slots=True)
class Bucket:
    """One bucket, full at first. A bucket that is not empty accepts any amount and may fall below zero."""

    burst: float
    per_s: float
    _left: float = field(default=math.inf, init=False)
    _at_s: float = field(default=-math.inf, init=False)

    def left(self, now_s: float) -> float:
        """Tokens that it holds now."""
        gained = max(now_s - self._at_s, 0.0) * self.per_s
        return min(self.burst, self._left + gained)

    def take(self, now_s: float, amount: float = 1.0) -> bool:
        """Take this much. False: it is empty, and nothing was taken."""
        if self.left(now_s) <= 0:
            return False
        self.spend(now_s, amount)
        return True

    def spend(self, now_s: float, amount: float) -> None:
        """Take this much even if it is empty: it was used already."""
        self._left, self._at_s = self.left(now_s) - amount, now_s

    def wait_s(self, now_s: float) -> float:
        """Seconds until it is not empty; 0: now."""
        left = self.left(now_s)
        return 0.0 if left > 0 else (-left) / self.per_s + 0.001
