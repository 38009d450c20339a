"""How many spares are wanted: tables against the published figures."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.decisions.spares.pool import by_rule, fault_rate, poisson_quantile, refill_time_s, wanted
from holdfast.model.background import Background, Outage
from holdfast.model.book import Book, World
from holdfast.model.machine import CAN_NOTHING, ProviderView
from holdfast.model.policies.policy import Policy, SparePolicy
from holdfast.model.slurm.cluster import ClusterView, Node

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def _view(nodes: int) -> ClusterView:
    shown = {f"n{n}": Node(f"n{n}", "IDLE", frozenset(), gpu_count=8) for n in range(nodes)}
    return ClusterView("c", NOW, shown, {}, {})


def _world(nodes: int, background: Background, *, replaces: bool = True, **spares: object) -> World:
    policy = replace(Policy(), spares=SparePolicy(wanted="p99", **spares))  # type: ignore[arg-type]
    provider = ProviderView("ec2", replace(CAN_NOTHING, replace=replaces), NOW)
    return World(NOW, policy, Book(provider=provider), _view(nodes), background=background)


def _record(days: float, faults: int, back_after: timedelta | None = timedelta(hours=1)) -> Background:
    begin = NOW - days * DAY
    step = (NOW - begin - timedelta(hours=3)) / max(faults, 1)
    outages = tuple(
        Outage(f"n{n}", f"i{n}", "", "gpu.xid", begin + n * step, begin + n * step + back_after if back_after else None)
        for n in range(faults)
    )
    return Background(NOW, begin, outages)


@pytest.mark.parametrize(
    ("nodes", "per_1000_days", "hours", "spares"),
    [
        (16, 2.34, 1, 0),
        (16, 12, 72, 3),
        (64, 6.5, 1, 1),
        (128, 6.5, 24, 4),
        (256, 2.34, 72, 6),
        (512, 6.5, 72, 18),
        (1024, 6.5, 1, 2),
        (1024, 12, 24, 21),
        (1024, 12, 72, 52),
    ],
)
def test_the_published_table(nodes: int, per_1000_days: float, hours: float, spares: int) -> None:
    """facts: smallest s with P[Poisson(N r T) <= s] >= 0.99."""
    assert poisson_quantile(nodes * per_1000_days / 1000 * hours / 24, 0.99) == spares


def test_a_very_large_mean_is_near_the_normal_one() -> None:
    assert abs(poisson_quantile(499.0, 0.99) - 552) <= 1
    assert abs(poisson_quantile(501.0, 0.99) - 554) <= 1


def test_without_history_the_prior_speaks() -> None:
    rate, _ = fault_rate(_world(64, Background(NOW, NOW)), 64)
    assert rate == pytest.approx(6.5e-3)
    assert refill_time_s(_world(64, Background(NOW, NOW)))[0] == 3600.0
    assert refill_time_s(_world(64, Background(NOW, NOW), replaces=False))[0] == 24 * 3600.0


def test_much_history_outweighs_it() -> None:
    world = _world(100, _record(90, 90, timedelta(hours=4)))
    rate, text = fault_rate(world, 100)
    assert rate == pytest.approx(10e-3, rel=0.02)
    assert "90 faults" in text
    assert refill_time_s(world)[0] == pytest.approx(4 * 3600, rel=0.04)


def test_only_the_window_counts() -> None:
    world = _world(100, _record(180, 180), rate_window_s=10 * 86400)
    assert fault_rate(world, 100)[0] == pytest.approx(10 / (1000 + 154), rel=0.02)


def test_nodes_that_are_still_out_make_the_repair_longer() -> None:
    out = Outage("n1", "i1", "", "gpu.xid", NOW - 10 * DAY)
    still = _world(8, Background(NOW, NOW - 30 * DAY, (out,)))
    taken_over = _world(8, Background(NOW, NOW - 30 * DAY, (replace(out, over=True),)))
    assert refill_time_s(still)[0] == pytest.approx((3 * 3600 + 10 * 86400) / 3)
    assert refill_time_s(taken_over)[0] == 3600.0
    by_hand = replace(out, back_at=NOW, by_others=True, over=True)
    assert refill_time_s(_world(8, Background(NOW, NOW - 30 * DAY, (by_hand,))))[0] == 3600.0, "not Holdfast's own time"


@pytest.mark.parametrize(
    ("asked", "number"), [("", None), (0, 0), (5, 5), ("p99", 1)], ids=["nothing", "none", "a number", "the rule"]
)
def test_what_the_site_asks_for(asked: int | str, number: int | None) -> None:
    world = _world(64, _record(30, 5))
    world = replace(world, policy=replace(world.policy, spares=SparePolicy(wanted=asked)))
    if asked == "p99":
        world = replace(world, background=replace(world.background, by_rule=by_rule(world, _view(64))))
    assert wanted(world).number == number


def test_the_rule_is_bounded() -> None:
    quiet = _world(4, _record(90, 0), at_least=2)
    assert by_rule(quiet, _view(4)).number == 2
    broken = _world(20, _record(10, 60, timedelta(days=3)), at_most_share=0.1)
    found = by_rule(broken, _view(20))
    assert found.number == 2
    assert "at_most_share" in found.reasons[-1]


def test_the_rule_waits_for_the_history() -> None:
    assert wanted(_world(64, Background())).number is None
