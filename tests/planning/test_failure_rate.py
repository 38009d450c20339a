"""The exact interval of a Poisson rate, against chi-square tables."""

from __future__ import annotations

import pytest

from holdfast.planning import failure_rate

# Half the chi-square quantiles of 2k (0.025) and 2k + 2 (0.975) degrees of freedom.
TABLE = [(0, 0.0, 3.6889), (1, 0.0253, 5.5716), (4, 1.0899, 10.2416), (10, 4.7954, 18.3904), (100, 81.3640, 121.6270)]


@pytest.mark.parametrize(("count", "low", "high"), TABLE)
def test_limits(count: int, low: float, high: float) -> None:
    got = failure_rate.estimate(count, 100.0)
    assert (got.low * 100, got.high * 100) == pytest.approx((low, high), abs=1e-3)
    assert got.per_hour == count / 100


def test_many_failures_by_the_approximation() -> None:
    """Just below and above where it begins: relative limits differ by less than the step from one count to the next."""
    exact, near = (failure_rate.estimate(k, float(k)) for k in (199, 200))
    assert (near.low, near.high) == pytest.approx((exact.low, exact.high), abs=5e-4)


def test_a_wider_interval_for_more_confidence() -> None:
    narrow, wide = (failure_rate.estimate(10, 1.0, c) for c in (0.5, 0.999))
    assert wide.low < narrow.low < 10 < narrow.high < wide.high
