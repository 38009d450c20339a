"""Learning rates by samples seen, not by steps, and their scaling with a variable batch. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from holdfast_train.errors import Unusable


class Rule(StrEnum):
    """Scaling of the learning rate for a batch of another size than ``base_samples``."""

    LINEAR = "linear"
    SQRT = "sqrt"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Scaling:
    """With a fixed global batch, the default of this library, every rule gives 1 and none is needed.

    ``table``: factor for each batch in samples, for the rule TABLE only. Raises Unusable."""

    rule: Rule
    base_samples: int
    table: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.base_samples < 1:
            raise Unusable(f"the learning rate is for a batch of {self.base_samples}: it must be 1 or more")
        if (self.rule is Rule.TABLE) != bool(self.table):
            raise Unusable("a table of learning rates goes with the rule 'table', and only with it")
        wrong = [f for f in self.table.values() if not (math.isfinite(f) and f > 0)]
        if wrong:
            raise Unusable(f"the table of learning rates holds {wrong[0]}: factors are positive and finite")

    def factor(self, samples: int) -> float:
        """Factor of the learning rate in a step of this many samples. Raises Unusable."""
        if samples < 1:
            raise Unusable(f"a step of {samples} samples has no learning rate")
        ratio = samples / self.base_samples
        if self.rule is Rule.LINEAR:
            return ratio
        if self.rule is Rule.SQRT:
            return math.sqrt(ratio)
        if samples not in self.table:
            raise Unusable(f"the table of learning rates has no batch of {samples}: it has {sorted(self.table)}")
        return self.table[samples]


@dataclass(frozen=True, slots=True)
class WarmupCosine:
    """From 0 up over ``warmup_samples``, then down along half a cosine to ``floor`` at ``total_samples``."""

    warmup_samples: int
    total_samples: int
    floor: float = 0.1

    def __post_init__(self) -> None:
        if not (0 <= self.warmup_samples < self.total_samples and 0 <= self.floor <= 1):
            raise Unusable(
                f"a warm-up of {self.warmup_samples} in {self.total_samples} samples down to {self.floor} is not a valid schedule"
            )

    def factor(self, samples_seen: int) -> float:
        """Share of the peak learning rate, between 0 and 1."""
        if samples_seen < self.warmup_samples:
            return max(0, samples_seen) / self.warmup_samples
        done = min(1.0, (samples_seen - self.warmup_samples) / (self.total_samples - self.warmup_samples))
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * done)) / 2
