"""Failure rate from counted failures, with its interval. Pure.

The exact interval for a Poisson count (F. Garwood, "Fiducial limits for the Poisson distribution", Biometrika 28, 1936): with k failures
in an exposure E the limits are half the chi-square quantiles of 2k and 2k + 2 degrees of freedom, over E. They are found here on the
Poisson distribution itself, which is the same. Failures that come in bursts vary more than the interval says."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

CONFIDENCE = 0.95
_MANY = 200
"""Failures from which on the quantiles are those of E. B. Wilson and M. M. Hilferty (PNAS 17, 1931): right to 1 in 10,000 from there on."""

_LARGE = 5000.0
"""Mean above which the normal distribution is as good."""


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
    if failures >= _MANY:
        low, high = _half_chi_square(failures, tail), _half_chi_square(failures + 1, 1 - tail)
        return RateEstimate(
            failures / node_hours, low / node_hours, high / node_hours, failures, node_hours, confidence
        )
    low = _solve(lambda mean: 1 - poisson_at_most(failures - 1, mean), tail, failures) if failures else 0.0
    high = _solve(lambda mean: 1 - poisson_at_most(failures, mean), 1 - tail, failures)
    return RateEstimate(failures / node_hours, low / node_hours, high / node_hours, failures, node_hours, confidence)


def poisson_at_most(count: int, mean: float) -> float:
    """P[Poisson(mean) <= count]."""
    if mean <= 0:
        return 1.0
    if mean > _LARGE:
        return NormalDist(mean, math.sqrt(mean)).cdf(count + 0.5)
    return min(sum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1)), 1.0)


def _half_chi_square(count: int, share: float) -> float:
    """Half the quantile of the chi-square distribution with 2 ``count`` degrees of freedom."""
    return count * (1 - 1 / (9 * count) + NormalDist().inv_cdf(share) / (3 * math.sqrt(count))) ** 3


def _solve(rising: Callable[[float], float], value: float, about: int) -> float:
    """The mean at which a rising function of it has this value."""
    low, high = 0.0, about + 10 * math.sqrt(about + 1) + 10
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < value else (low, middle)
    return (low + high) / 2
