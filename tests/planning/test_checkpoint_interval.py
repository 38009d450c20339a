"""Best interval: Young, Daly, and the true minimum of the complete model."""

from __future__ import annotations

import pytest

from holdfast.planning import checkpoint_interval, run_cost
from holdfast.planning.run_cost import Saving

CASES = [(1 / 60, 7.8125), (1 / 60, 0.5), (0.2, 3.0), (1.0, 2.0)]


@pytest.mark.parametrize(("cost_h", "mtbf_h"), CASES)
def test_no_other_interval_is_better(cost_h: float, mtbf_h: float) -> None:
    best = checkpoint_interval.best_h(cost_h, mtbf_h)
    at_best = run_cost.slowdown(1 / mtbf_h, 0.3, Saving(best, cost_h))
    for other in (0.9, 0.99, 1.01, 1.1):
        assert run_cost.slowdown(1 / mtbf_h, 0.3, Saving(best * other, cost_h)) > at_best


@pytest.mark.parametrize(("cost_h", "mtbf_h"), CASES[:3])
def test_daly_is_nearer_than_young(cost_h: float, mtbf_h: float) -> None:
    best = checkpoint_interval.best_h(cost_h, mtbf_h)
    young, daly = checkpoint_interval.young_h(cost_h, mtbf_h), checkpoint_interval.daly_h(cost_h, mtbf_h)
    assert abs(daly - best) < abs(young - best)
    assert daly == pytest.approx(best, rel=0.01)


def test_an_mtbf_far_below_the_cost_of_a_save() -> None:
    assert checkpoint_interval.best_h(1 / 60, 1e-5) == pytest.approx(1e-5)


def test_saves_that_take_longer_than_the_mtbf_allows() -> None:
    """Daly's expansion holds below w = 2M; from there on D = M."""
    assert checkpoint_interval.daly_h(4.0, 2.0) == 2.0
