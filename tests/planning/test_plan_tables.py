"""The post's tables cell by cell, a site's own tables, and their curves."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

from holdfast.planning import curves, hyperpod_post, plan_curves, plan_table, site_plan
from holdfast.planning.curves import Curve
from holdfast.planning.failure_rate import estimate
from holdfast.planning.nodes_out import NodesOut
from holdfast.planning.plan_table import PlanTable
from holdfast.planning.site_plan import PlanInputs

POST = {table.name: table for table in hyperpod_post.tables()}
ONE = PlanInputs(sizes=(64, 256), rates_per_hour=(5e-4,))


def _column(table: PlanTable, name: str) -> list[object]:
    return [row[table.columns.index(name)] for row in table.rows]


def _numbers(table: PlanTable) -> dict[str, float]:
    """Of a table with the columns WHAT and VALUE."""
    return {str(what): float(str(value)) for what, value in table.rows}


def test_rates_of_the_published_runs() -> None:
    """The post prints 0.0588, 0.0161 and 0.0319 % an hour."""
    got = _column(POST["observed_rates"], "%/INSTANCE-HOUR")
    assert got == pytest.approx([0.0588, 0.0161, 0.0319], abs=5e-5)


@pytest.mark.parametrize(("instances", "hours"), [(4, (2500, 1250, 625, 312.5)), (512, (19.53, 9.766, 4.883, 2.441))])
def test_mtbf_of_the_post(instances: int, hours: tuple[float, ...]) -> None:
    (row,) = [row for row in POST["cluster_mtbf"].rows if row[0] == instances]
    assert row[1:] == pytest.approx(hours, rel=1e-3)


def test_training_time_removed_in_the_post() -> None:
    (row,) = [row for row in POST["hyperpod_removed"].rows if row[0] == 256]
    assert row[1:] == pytest.approx((9.147, 16.53, 32.05, 39.04), abs=0.005)


def test_example_of_the_post() -> None:
    got = _numbers(POST["hyperpod_example"])
    assert got["without, days"] == pytest.approx(325.0, abs=0.05)
    assert got["with, days"] == pytest.approx(220.8, abs=0.05)
    assert got["saved, million $"] == pytest.approx(25.6)


def test_what_the_post_leaves_out_makes_both_longer() -> None:
    plain, whole = _numbers(POST["hyperpod_example"]), _numbers(POST["hyperpod_example_all"])
    for key in ("without, days", "with, days"):
        assert whole[key] > plain[key]


def test_each_table_is_rectangular_and_named_once() -> None:
    inputs = PlanInputs((64,), (5e-4,), block=18, dispersion=2.0, rate_estimate=estimate(4, 1000.0),
                        measured_out=NodesOut(2.0, 2.0, (0.5, 0.5)), trace_nodes=64)  # fmt: skip
    for tables in (hyperpod_post.tables(), site_plan.tables(inputs)):
        assert len({t.name for t in tables}) == len(tables)
        assert all(len(row) == len(table.columns) for table in tables for row in table.rows)


def test_costs_of_a_site_grow_with_its_size() -> None:
    small, large = _column(site_plan.costs(ONE), "LOST WITH %")
    assert float(str(small)) < float(str(large))


@pytest.mark.parametrize(("nodes", "with_it"), [(5000, math.isfinite), (10**6, math.isinf)])
def test_a_run_that_never_ends_has_nothing_to_compare_with(nodes: int, with_it: Callable[[float], bool]) -> None:
    (row,) = site_plan.costs(PlanInputs((nodes,), (5e-4,))).rows
    days_without, days_with = (float(str(cell)) for cell in row[3:5])
    assert days_without == math.inf
    assert with_it(days_with)
    assert row[-2:] == (None, None)
    assert "nan" not in " ".join(map(plan_table.shown, row))


def test_an_interval_that_is_given_costs_no_less_than_the_best() -> None:
    best = site_plan.compare(ONE, 256, 5e-4)
    other = site_plan.compare(PlanInputs((256,), (5e-4,), interval_min=240), 256, 5e-4)
    assert other.with_it > best.with_it


def test_fewer_spares_cost_more() -> None:
    none, many = (site_plan.compare(PlanInputs((256,), (5e-4,), spares=s), 256, 5e-4).with_it for s in (0, 30))
    assert none > many


@pytest.mark.parametrize(
    ("cell", "text"),
    [(None, "-"), (1234, "1,234"), (0.0, "0"), (0.05879, "0.05879"), (9.7656, "9.766"), (5120000.4, "5,120,000"),
     (math.inf, "never"), ("x", "x")],
)  # fmt: skip
def test_cells_for_people(cell: plan_table.Cell, text: str) -> None:
    assert plan_table.shown(cell) == text


@pytest.mark.parametrize(
    "drawn", [plan_curves.of_post(), plan_curves.of_site(ONE), plan_curves.of_nodes_out(NodesOut(2.0, 2.0, (0.5, 0.5)))],
    ids=["post", "site", "nodes out"],
)  # fmt: skip
def test_curves_are_svg_within_their_frame(drawn: str) -> None:
    root = ET.fromstring(drawn)  # noqa: S314 (made right above)
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert lines
    points = [p.split(",") for each in lines for p in each.attrib["points"].split()]
    assert all(0 <= float(x) <= 720 and 0 <= float(y) <= 420 for x, y in points)


def test_a_curve_leaves_out_what_is_infinite_and_escapes_names() -> None:
    drawn = curves.svg("a<b", "x", "y", [Curve("c&d", ((1.0, 1.0), (2.0, math.inf), (4.0, 3.0)))])
    assert "a&lt;b" in drawn
    assert "c&amp;d" in drawn
    assert "inf" not in drawn
