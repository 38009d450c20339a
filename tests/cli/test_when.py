"""Times as an operator types them, in the zone of the terminal, across the change of the clocks too."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from holdfast.cli.common.when import both, clock, last_evening, parse_when
from holdfast.model.errors import Usage

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 1, 28, 9, 30, tzinfo=UTC)
"""A Wednesday, 10:30 in Berlin."""

TIMES = [
    ("now", "2026-01-28T09:30"),
    ("2h", "2026-01-28T07:30"),
    ("90 min ago", "2026-01-28T08:00"),
    ("1.5h", "2026-01-28T08:00"),
    ("3d", "2026-01-25T09:30"),
    ("1w", "2026-01-21T09:30"),
    ("2 weeks ago", "2026-01-14T09:30"),
    ("today", "2026-01-27T23:00"),
    ("Yesterday", "2026-01-26T23:00"),
    ("yesterday 18:00", "2026-01-27T17:00"),
    ("08:15", "2026-01-28T07:15"),
    ("8:15:30", "2026-01-28T07:15:30"),
    ("18:00", "2026-01-27T17:00"),
    ("monday", "2026-01-25T23:00"),
    ("mon 09:00", "2026-01-26T08:00"),
    ("wednesday", "2026-01-27T23:00"),
    ("thursday", "2026-01-21T23:00"),
    ("2026-01-20", "2026-01-20T00:00"),
    ("2026-01-20T12:00", "2026-01-20T12:00"),
    ("2026-01-20 12:00:01", "2026-01-20T12:00:01"),
    ("2026-01-20T12:00+01:00", "2026-01-20T11:00"),
    ("2026-01-20T12:00Z", "2026-01-20T12:00"),
]


@pytest.mark.parametrize(("text", "at"), TIMES)
def test_a_time_is_understood(text: str, at: str) -> None:
    assert parse_when(text, NOW, BERLIN) == datetime.fromisoformat(at).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "24:00",
        "10:60",
        "yesterday noon",
        "5 parsecs",
        "2x",
        "3 monkeys",
        "tomorrow",
        "1500-01-01",
        "200000d",
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(Usage):
        parse_when(text, NOW, BERLIN)


def test_a_day_before_the_clocks_changed_has_its_own_offset() -> None:
    monday_after = datetime(2026, 3, 30, 8, 0, tzinfo=UTC)
    assert parse_when("saturday 12:00", monday_after, BERLIN) == datetime(2026, 3, 28, 11, 0, tzinfo=UTC)
    assert parse_when("sunday 12:00", monday_after, BERLIN) == datetime(2026, 3, 29, 10, 0, tzinfo=UTC)


def test_without_a_zone_the_terminals_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    import time  # noqa: PLC0415

    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert parse_when("yesterday", NOW) == datetime(2026, 1, 27, 5, 0, tzinfo=UTC)
        assert both(NOW) == "Wed 2026-01-28 04:30 EST (09:30 UTC)"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("hour", "since"),
    [
        (3, "2026-01-27T17:00"),
        (9, "2026-01-27T17:00"),
        (16, "2026-01-27T17:00"),
        (17, "2026-01-28T05:00"),
        (22, "2026-01-28T10:00"),
    ],
)
def test_last_night_begins_in_the_evening(hour: int, since: str) -> None:
    now = datetime(2026, 1, 28, hour, 0, tzinfo=UTC)
    assert last_evening(now, BERLIN) == datetime.fromisoformat(since).replace(tzinfo=UTC)


def test_a_time_is_shown_in_both_zones() -> None:
    at = datetime(2026, 1, 27, 23, 30, tzinfo=UTC)
    assert both(at, BERLIN) == "Wed 2026-01-28 00:30 CET (2026-01-27 23:30 UTC)"
    assert both(at, ZoneInfo("UTC")) == "Tue 2026-01-27 23:30 UTC"
    assert clock(at, NOW, BERLIN) == "00:30"
    assert clock(datetime(2026, 1, 27, 10, tzinfo=UTC), NOW, BERLIN) == "Tue 11:00"
