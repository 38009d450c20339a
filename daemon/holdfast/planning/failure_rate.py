"""Failure rate from counted failures, with its interval. Pure.

The exact interval for a Poisson count (F. Garwood, "Fiducial limits for the Poisson distribution", Biometrika 28, 1936): with k failures
in an exposure E the limits are half the chi-square quantiles of 2k and 2k + 2 degrees of freedom, over E. They are found here on the
Poisson distribution itself, which is the same. Failures that come in bursts vary more than the interval says."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class RateEstimate:
    """Failures per node-hour."""

    per_hour: float
    low: float
    high: float
    failures: int
    node_hours: float
    confidence: float = CONFIDENCE


def estimate(failures: int, node_hours: float, confidence: float = CONFIDENCE) -> RateEstimate:
    """The most likely rate, and the two-sided interval. ``node_hours`` above 0. Without a failure the rate is 0, and the upper limit is
    -ln(alpha / 2) / E."""
    tail = (1 - confidence) / 2
    low = _solve(lambda mean: 1 - poisson_at_most(failures - 1, mean), tail, failures) if failures else 0.0
    high = _solve(lambda mean: 1 - poisson_at_most(failures, mean), 1 - tail, failures)
    return RateEstimate(failures / node_hours, low / node_hours, high / node_hours, failures, node_hours, confidence)


def poisson_at_most(count: int, mean: float) -> float:
    """P[Poisson(mean) <= count]."""
    if mean <= 0:
        return 1.0
    return min(sum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1)), 1.0)


def _solve(rising: Callable[[float], float], value: float, about: int) -> float:
    """The mean at which a rising function of it has this value."""
    low, high = 0.0, about + 10 * math.sqrt(about + 1) + 10
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < value else (low, middle)
    return (low + high) / 2
