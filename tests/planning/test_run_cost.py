"""Closed forms: what a failure costs, checked against limits and against what is published."""

from __future__ import annotations

import math

import pytest

from holdfast.planning import run_cost
from holdfast.planning.run_cost import CapacityWait, Downtime, Saving, TrainingRun

SAVING = Saving(0.5, 1 / 60)


@pytest.mark.parametrize(
    ("nodes", "rate", "hours"), [(4, 1e-4, 2500.0), (256, 5e-4, 7.8125), (512, 8e-4, 2.44140625), (8, 0.0, math.inf)]
)
def test_mtbf_of_the_cluster(nodes: int, rate: float, hours: float) -> None:
    assert run_cost.cluster_mtbf_h(nodes, rate) == pytest.approx(hours)


def test_a_run_without_failures_costs_its_saves_alone() -> None:
    assert run_cost.slowdown(0.0, 1.0, Saving(1.0, 0.1)) == pytest.approx(1.1)


def test_rare_failures_cost_downtime_half_an_interval_and_the_saves() -> None:
    """To first order: 1 + w/D + L (R + D/2), which RSC's expected ETTR is the inverse of."""
    rate, down_h = 1e-5, 0.4
    first_order = 1 + SAVING.cost_h / SAVING.interval_h + rate * (down_h + SAVING.interval_h / 2)
    assert run_cost.slowdown(rate, down_h, SAVING) == pytest.approx(first_order, abs=1e-6)


def test_effective_time_of_16k_gpus_at_meta() -> None:
    """Kokolis et al. (HPCA 2025) expect 0.93 for 16,384 GPUs of RSC-1 with a checkpoint each 5 min: u0 5 min, M 1.8 h."""
    assert 1 / run_cost.slowdown(1 / 1.8, 5 / 60, Saving(5 / 60, 0.0)) == pytest.approx(0.93, abs=0.01)


def test_what_waits_costs_more_and_none_waits_costs_the_same() -> None:
    plain = run_cost.slowdown(0.1, 0.4, SAVING)
    assert run_cost.slowdown(0.1, 0.4, SAVING, CapacityWait(0.0, 100.0)) == pytest.approx(plain)
    assert run_cost.slowdown(0.1, 0.4, SAVING, CapacityWait(1.0, 2.0)) == pytest.approx(plain * (1 + 0.1 * 2.0))


def test_a_segment_that_never_completes_is_infinite() -> None:
    slow = run_cost.slowdown(10.0, 1.0, Saving(100.0, 0.1))
    assert slow == math.inf
    assert run_cost.share_lost(slow) == 1.0


def test_money_and_days_of_the_posts_example() -> None:
    run = TrainingRun(nodes=256, gpus_per_node=8, rate_per_hour=5e-4, gpu_hours=10e6)
    without, with_it = (run_cost.post_slowdown(run.cluster_rate, d / 60) for d in (280, 40))
    saved = run_cost.saved(run, without, with_it)
    assert (saved.without_h / 24, saved.with_h / 24, saved.hours / 24) == pytest.approx((325.0, 220.8, 104.2), abs=0.05)
    assert saved.money(5.0) == pytest.approx(25.6e6)


def test_parts_of_a_downtime() -> None:
    assert (Downtime(1.5, 15, 23.5).minutes, Downtime(10, 240, 30).hours) == (40.0, 280 / 60)
