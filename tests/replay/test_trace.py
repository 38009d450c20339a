"""Reading a failure trace: what is refused names its line and what to write."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.model.errors import Usage
from holdfast.replay.trace import read_trace


def test_days_since_the_start() -> None:
    trace = read_trace(["# a comment", "node,start,end,cause", "n1,1.5,2.5,GPU", "", "n2,2,,x,".rstrip(",")], "t.csv")
    assert [(f.node, trace.lasted_h(f), f.cause) for f in trace.failures] == [("n1", 24.0, "GPU"), ("n2", 12.0, "x")]
    assert trace.hours == 60.0
    assert trace.failures[1].end is None


def test_dates_with_and_without_an_offset() -> None:
    trace = read_trace(["n1,2026-01-01T12:00,2026-01-01T13:00+00:00,x"], "t.csv")
    assert trace.begins == datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert trace.hours == 1.0


def test_outages_of_a_node_that_overlap_are_one() -> None:
    trace = read_trace(["n1,1,3,a", "n1,2,5,b", "n1,5,6,c"], "t.csv")
    assert [(trace.lasted_h(f) / 24, f.cause) for f in trace.failures] == [(4.0, "a"), (1.0, "c")]


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        ([], "has no failure"),
        (["node,start,end,cause", "# nothing"], "has no failure"),
        (["#", "n1,1,2"], "t.csv, line 2: 3 columns"),
        (["n1,1,2,a,b"], "5 columns"),
        ([",1,2,a"], "needed are node,start,end,cause"),
        (["n1,soon,2,a"], "'soon' is no time: write 2026-01-31T12:00"),
        (["n1,nan,2,a"], "'nan' is no time"),
        (["n1,1e99,2,a"], "'1e99' is no time"),
        (["n1,2,1,a"], "its end 1 is before its start 2"),
        (["n1,0,0,a"], "covers no time"),
        (["n1,-5,2,a"], "'-5' is no time"),
        (["n1,0001-01-01T00:00+14:00,2,a"], "is no time"),
        (["n1,2026-01-01T00:00,9999-12-31T23:00,a"], "'9999-12-31T23:00' is no time"),
        (["n1,1995-01-01,1995-01-02,a", "n2,2100-01-01,2100-01-02,a"], "is a year misspelt?"),
        ([f"n1,1,2,{'x' * 200_000}"], "t.csv, line 1: field larger"),
        ([f"n1,{'9' * 500},2,a"], "is no time"),
    ],
)
def test_one_line_that_says_what_to_write(lines: list[str], word: str) -> None:
    with pytest.raises(Usage) as error:
        read_trace(lines, "t.csv")
    assert word in str(error.value)
    assert "\n" not in str(error.value)
