"""A small model in plain Python: logistic regression with momentum on random data.

The same seed, ranks and steps give the same weights to the last bit, interrupted or not.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

FEATURES = 16
BATCH = 16
"""Samples per rank and step."""
_LEARNING_RATE = 0.1
_MOMENTUM = 0.9


@dataclass
class RegressionModel:
    """The state of one rank. Weights and velocity are the same on all ranks, data position and generator are its own."""

    seed: int
    rank: int
    step: int = 0
    weights: list[float] = field(default_factory=lambda: [0.0] * (FEATURES + 1))
    velocity: list[float] = field(default_factory=lambda: [0.0] * (FEATURES + 1))
    samples_seen: int = 0

    def __post_init__(self) -> None:
        truth = random.Random(self.seed)  # noqa: S311 - synthetic data
        self._truth = [truth.gauss(0.0, 1.0) for _ in range(FEATURES + 1)]
        self._data = random.Random(f"{self.seed}/{self.rank}")  # noqa: S311 - synthetic data

    def gradient(self) -> list[float]:
        """Draw the next batch. Returns the summed gradient, with the summed loss as the last number."""
        total = [0.0] * (FEATURES + 2)
        for _ in range(BATCH):
            sample = [self._data.gauss(0.0, 1.0) for _ in range(FEATURES)] + [1.0]
            label = 1.0 if _dot(self._truth, sample) > 0.0 else 0.0
            guess = 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, _dot(self.weights, sample)))))
            for i, x in enumerate(sample):
                total[i] += (guess - label) * x
            total[-1] -= math.log(max(guess if label else 1.0 - guess, 1e-12))
        self.samples_seen += BATCH
        return total

    def apply(self, total: list[float], world_size: int) -> float:
        """Take one step with the gradient summed over all ranks. Returns the mean loss."""
        samples = BATCH * world_size
        for i in range(FEATURES + 1):
            self.velocity[i] = _MOMENTUM * self.velocity[i] + total[i] / samples
            self.weights[i] -= _LEARNING_RATE * self.velocity[i]
        self.step += 1
        return total[-1] / samples

    def state(self) -> dict[str, Any]:
        """State to continue exactly from here, for JSON (floats keep every bit)."""
        return {
            "seed": self.seed,
            "rank": self.rank,
            "step": self.step,
            "weights": self.weights,
            "velocity": self.velocity,
            "samples_seen": self.samples_seen,
            "generator": self._data.getstate(),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> RegressionModel:
        """The inverse of :meth:`state`. Raises KeyError, ValueError, TypeError for anything else."""
        version, numbers, gauss_next = state["generator"]
        model = cls(
            state["seed"],
            state["rank"],
            state["step"],
            [float(w) for w in state["weights"]],
            [float(v) for v in state["velocity"]],
            state["samples_seen"],
        )
        model._data.setstate((version, tuple(numbers), gauss_next))
        return model


def _dot(left: list[float], right: list[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))
