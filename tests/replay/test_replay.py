"""Replays of small traces: spares, waits, brakes and lemons by the daemon's own rules."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.model.policies.policy import Policy
from holdfast.planning import nodes_out
from holdfast.planning.nodes_out import SpareMethod
from holdfast.planning.run_cost import Downtime
from holdfast.replay import replay_tables
from holdfast.replay.drive import Replayed, ReplayRules, replay
from holdfast.replay.repeat_offenders import OffenderScore, score
from holdfast.replay.trace import Trace, read_trace

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "infinitehbd-trace.csv"
HALF_HOUR = Downtime(1, 4, 25)
POLICY = Policy()


def _trace(*lines: str) -> Trace:
    """And one more failure, of zz on day 30, with its own recovery."""
    return read_trace([*lines, "zz,30,31,the end"], "t.csv")


def _replayed(trace: Trace, nodes: int = 20, spares: int = 2, release_min: float = 30) -> Replayed:
    return replay(trace, ReplayRules(nodes, HALF_HOUR, release_after=timedelta(minutes=release_min)), spares)


def _score(trace: Trace) -> OffenderScore:
    return score(trace, 20, POLICY.history, POLICY.repair)


def test_a_failure_with_a_spare_costs_one_recovery() -> None:
    got = _replayed(_trace("a,1,2,x"))
    assert (got.job_failures, got.taken, got.waits) == (2, 2, 0)
    assert got.down_h == pytest.approx(2 * 0.5)


def test_without_a_spare_the_job_waits_until_a_node_is_back() -> None:
    got = _replayed(_trace("a,1,2,x"), spares=0)
    assert got.waits == 2
    assert got.waited_h == pytest.approx(48.0)  # zz waits for as long, to the end of the trace
    assert got.down_h == pytest.approx(24.5 + 24.0)


def test_a_failure_during_a_recovery_starts_it_again() -> None:
    """The second comes 12 minutes after the first, of 30."""
    minutes = 12 / 1440
    got = _replayed(_trace("a,1,2,x", f"b,{1 + minutes:.6f},2,x"))
    assert (got.taken, got.waits) == (3, 0)
    assert got.down_h == pytest.approx((0.5 + 0.2) + 0.5, abs=1e-3)


def test_a_failed_spare_stops_no_job() -> None:
    """zz is the one spare."""
    got = _replayed(_trace(), nodes=2, spares=1)
    assert (got.job_failures, got.down_h) == (0, 0.0)


def test_many_at_once_trip_the_drain_brake_and_wait_for_an_operator() -> None:
    """Nine of 20 at the same minute: more than three. Their drains, and so their returns, come two hours later."""
    nine = [f"a{n},1,1.25,fans" for n in range(9)]
    got = _replayed(_trace(*nine), spares=5, release_min=120)
    (brake,) = got.brakes
    assert (brake.name, brake.held) == ("drains", 9)
    assert "9 nodes are suspect within 10 min" in brake.reason
    sooner = _replayed(_trace(*nine), spares=5, release_min=0)
    assert got.waited_h == pytest.approx(sooner.waited_h + 2.0)


def test_few_trip_nothing() -> None:
    assert _replayed(_trace(*(f"a{n},1,2,x" for n in range(3)))).brakes == []


def test_a_lemon_is_the_last_spare_that_is_taken() -> None:
    """a fails twice within 7 days and is a lemon; then a healthy spare is preferred although its name is later."""
    lines = ("a,1,1.1,x", "a,3,3.1,x", "b,5,5.1,x")
    taken = _replayed(_trace(*lines), nodes=8, spares=2)
    assert (taken.taken, taken.lemons_taken) == (3, 0)
    assert _replayed(_trace(*lines), nodes=3, spares=1).lemons_taken == 1, "it was the only one"


def test_the_rule_for_spares_is_asked_once_a_day() -> None:
    got = _replayed(_trace("a,1,2,x"))
    assert len(got.wanted) == 31
    assert min(got.wanted) >= POLICY.spares.at_least


def test_precision_and_recall_of_repeat_offenders() -> None:
    """a: twice in a week, then again: one verdict, right. b: twice in a week, never again: wrong. c: again after 20 days without ever
    being a lemon: missed."""
    got = score(
        read_trace(
            ["a,1,2,x", "a,4,5,x", "a,12,13,x", "b,1,2,x", "b,4,5,x", "c,1,2,x", "c,22,23,x", "zz,80,81,x"], "t.csv"
        ),
        20,
        POLICY.history,
        POLICY.repair,
    )
    assert (got.verdicts, got.right) == (3, 1), "a's third fault made it a lemon again, and nothing followed"
    assert (got.repeats, got.caught) == (4, 1)
    assert got.precision == pytest.approx(1 / 3)
    assert got.recall == pytest.approx(1 / 4)


def test_nothing_to_divide_by() -> None:
    got = _score(_trace("a,1,2,x"))
    assert (got.precision, got.recall) == (None, None)


def test_the_shipped_trace() -> None:
    """400 servers, 582 outages; the measured number out at once, which Poisson misses."""
    trace = read_trace(EXAMPLE.read_text().splitlines(), EXAMPLE.name)
    out = trace.out()
    assert len(trace.failures) == 582
    assert [nodes_out.quantile(out, SpareMethod.EMPIRICAL, q) for q in (0.5, 0.9, 0.99)] == [7, 22, 31]
    got = score(trace, 400, POLICY.history, POLICY.repair)
    assert (got.precision, got.recall) == pytest.approx((0.549, 0.391), abs=1e-3)
    assert got.precision is not None
    assert got.precision > 5 * got.chance


@pytest.mark.slow
def test_the_shipped_trace_with_spares_by_its_own_quantile() -> None:
    trace = read_trace(EXAMPLE.read_text().splitlines(), EXAMPLE.name)
    rules = ReplayRules(400, HALF_HOUR)
    enough = replay(trace, rules, 31)
    assert enough.down_share < 0.03
    assert enough.taken > 390
    assert {b.name for b in enough.brakes} == {"drains"}
    assert len({b.at.date() for b in enough.brakes}) == 4
    assert replay_tables.outcome([enough], rules).rows[0][0] == 31
