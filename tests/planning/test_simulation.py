"""The simulation confirms each closed form within its interval, and refutes a wrong one."""

from __future__ import annotations

from random import Random

import pytest

from holdfast.planning import nodes_out, run_cost, simulate
from holdfast.planning.nodes_out import NodesOut, SpareMethod
from holdfast.planning.run_cost import CapacityWait, Saving

SAVING = Saving(0.5, 0.02)
RUNS, SEGMENTS = 16, 400


def _mean(rate: float, down_h: float, waiting: CapacityWait) -> simulate.Mean:
    runs = [simulate.simulate_slowdown(rate, down_h, SAVING, Random(seed), SEGMENTS, waiting) for seed in range(RUNS)]
    return simulate.mean_of(runs, sigmas=4)


@pytest.mark.parametrize("waiting", [CapacityWait(), CapacityWait(0.3, 1.5)], ids=["spares", "some wait"])
@pytest.mark.parametrize(("rate", "down_h"), [(0.05, 0.4), (0.8, 0.4), (0.3, 3.0)])
def test_the_complete_model(rate: float, down_h: float, waiting: CapacityWait) -> None:
    assert _mean(rate, down_h, waiting).holds(run_cost.slowdown(rate, down_h, SAVING, waiting))


def test_what_the_post_leaves_out_shows() -> None:
    assert not _mean(0.8, 0.4, CapacityWait()).holds(run_cost.post_slowdown(0.8, 0.4))


def test_nodes_out_are_poisson_with_the_mean_whatever_the_repairs_look_like() -> None:
    """Nine of ten repairs take an hour, one takes 60: mean 6.9, median 1."""
    chance = Random(1)
    out = simulate.simulate_nodes_out(
        0.5, lambda: 60.0 if chance.random() < 0.1 else 1.0, chance, hours=8_000, settle_h=200
    )
    assert out.mean == pytest.approx(3.45, rel=0.08)
    assert out.dispersion == pytest.approx(1.0, abs=0.2)
    by_mean = nodes_out.quantile(NodesOut(3.45), SpareMethod.POISSON, 0.99)
    assert abs(nodes_out.quantile(out, SpareMethod.EMPIRICAL, 0.99) - by_mean) <= 1
    assert nodes_out.quantile(NodesOut(0.5), SpareMethod.POISSON, 0.99) < by_mean - 2, "the median would be too few"
