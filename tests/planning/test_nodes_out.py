"""Nodes out at once: Poisson, over-dispersed, and measured; spares inside a block."""

from __future__ import annotations

import pytest

from holdfast.planning import nodes_out
from holdfast.planning.nodes_out import NodesOut, SpareMethod

POISSON, OVER, MEASURED = SpareMethod.POISSON, SpareMethod.NEGATIVE_BINOMIAL, SpareMethod.EMPIRICAL


def test_shares_of_the_time() -> None:
    """0 to 10 h; one node 2 to 6, another 4 to 20."""
    out = nodes_out.measured([(2.0, 6.0), (4.0, 20.0)], 10.0)
    assert out.shares == pytest.approx((0.2, 0.6, 0.2))
    assert (out.mean, out.dispersion) == pytest.approx((1.0, 0.4))
    assert [nodes_out.quantile(out, MEASURED, q) for q in (0.2, 0.21, 0.8, 0.99)] == [0, 1, 1, 2]


def test_nobody_out_needs_no_spare() -> None:
    out = nodes_out.measured([], 10.0)
    assert [nodes_out.quantile(out, method, 0.99) for method in SpareMethod] == [0, 0, 0]


def test_the_fault_trace_of_400_servers() -> None:
    """Mean 9.26 and variance 5.79 times that were measured, and 31 at P99; Poisson falls short by half."""
    out = NodesOut(9.259, 5.79)
    assert [nodes_out.quantile(out, method, 0.99) for method in (POISSON, OVER)] == [17, 33]


@pytest.mark.parametrize("method", [POISSON, OVER])
@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_the_quantile_is_the_least_number_that_is_enough(method: SpareMethod, share: float) -> None:
    out = NodesOut(4.2, 2.5)
    number = nodes_out.quantile(out, method, share)
    assert nodes_out.at_most(out, method, number - 1) < share <= nodes_out.at_most(out, method, number)


def test_mean_and_variance_of_the_over_dispersed_one() -> None:
    out = NodesOut(4.2, 2.5)
    shares = [nodes_out.at_most(out, OVER, n) - nodes_out.at_most(out, OVER, n - 1) for n in range(60)]
    again = nodes_out.of_times(dict(enumerate(shares)))
    assert (again.mean, again.dispersion) == pytest.approx((4.2, 2.5))


def test_many_nodes_out_by_the_normal_distribution() -> None:
    """Above a mean of 500 the sum from zero underflows; each share has its own quantile there."""
    out = NodesOut(600.0)
    assert [nodes_out.quantile(out, POISSON, q) for q in (0.5, 0.9, 0.99)] == [600, 632, 657]


def test_a_rack_needs_its_spares_inside() -> None:
    """16 racks of 18: more in all than one pool, and more still so that no rack is short."""
    out = NodesOut(3.456)
    one = nodes_out.quantile(out, POISSON, 0.99)
    racks = nodes_out.by_block(out, 288, 18, POISSON, 0.99)
    assert (one, racks.blocks, racks.each, racks.each_for_all) == (8, 16, 2, 3)
    assert (racks.total, racks.total_for_all) == (32, 48)


def test_failures_that_find_no_spare() -> None:
    out = NodesOut(1.0)
    none, some, many = (nodes_out.no_spare_left(out, s, POISSON) for s in (0, 2, 20))
    assert (none, many) == pytest.approx((1.0, 0.0))
    assert some == pytest.approx(1 - 2 / 2.718281828)
