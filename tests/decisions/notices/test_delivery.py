"""Routes, quiet hours, retries and the daily summary, as tables."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from holdfast.decisions.notices import healed, outbox
from holdfast.decisions.notices.routes import QuietHours, RouteRule, ready_at, takes
from holdfast.model.book import Book
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.notice import Matter, Message, NoticeLevel, NoticeState, Topic
from support.store_nouns import incident

NOW = datetime(2026, 7, 1, 21, 30, tzinfo=UTC)  # 23:30 in Berlin
BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = QuietHours(time(22), time(7), BERLIN)
L = NoticeLevel


def message(
    level: L = L.NEEDS_SOMEBODY, *, topic: Topic = Topic.BRAKE, nodes: tuple[str, ...] = (), over: bool = False
) -> Message:
    return Message("m1", NOW, level, topic, "s", "b", over=over, matters=(Matter(topic, "t", "s", level, nodes=nodes),))


@pytest.mark.parametrize(
    ("rule", "sent", "taken"),
    [
        (RouteRule(), message(), True),
        (RouteRule(), message(L.HEALED), False),
        (RouteRule(frozenset({L.HEALED, L.DIGEST})), message(L.DIGEST), True),
        (RouteRule(topics=frozenset({Topic.BRAKE})), message(), True),
        (RouteRule(topics=frozenset({Topic.JOB_HELD})), message(), False),
        (RouteRule(topics=frozenset({Topic.BRAKE})), replace(message(), topic=Topic.SEVERAL), True),
        (RouteRule(nodes=frozenset({"n1"})), message(nodes=("n1", "n2")), True),
        (RouteRule(nodes=frozenset({"n1"})), message(nodes=("n2",)), False),
        (RouteRule(nodes=frozenset({"n1"})), message(), True),
        (RouteRule(partitions=frozenset({"a"})), message(nodes=("of-a",)), True),
        (RouteRule(partitions=frozenset({"a"})), message(nodes=("of-b",)), False),
        (RouteRule(partitions=frozenset({"a"})), message(nodes=("not-known",)), True),
        (RouteRule(nodes=frozenset({"of-b"}), partitions=frozenset({"a"})), message(nodes=("of-b",)), True),
    ],
)
def test_which_route_takes_which_message(rule: RouteRule, sent: Message, taken: bool) -> None:
    where = {"of-a": frozenset({"a", "x"}), "of-b": frozenset({"b"}), "not-known": None}
    assert takes(rule, sent, where) is taken


@pytest.mark.parametrize(
    ("quiet", "sent", "now", "ready"),
    [
        (NIGHT, message(), NOW, NOW),
        (NIGHT, message(L.HEALED), NOW, datetime(2026, 7, 2, 5, 0, tzinfo=UTC)),
        (NIGHT, message(over=True), NOW, datetime(2026, 7, 2, 5, 0, tzinfo=UTC)),
        (NIGHT, message(L.HEALED), NOW.replace(hour=2), datetime(2026, 7, 1, 5, 0, tzinfo=UTC)),
        (NIGHT, message(L.HEALED), NOW.replace(hour=12), NOW.replace(hour=12)),
        (QuietHours(time(20), time(23), UTC), message(L.DIGEST), NOW, datetime(2026, 7, 1, 23, 0, tzinfo=UTC)),
        (None, message(L.DIGEST), NOW, NOW),
    ],
)
def test_quiet_hours_hold_back_all_but_what_needs_an_operator(
    quiet: QuietHours | None, sent: Message, now: datetime, ready: datetime
) -> None:
    assert ready_at(RouteRule(quiet=quiet), sent, now) == ready


def posted() -> NoticeState:
    return outbox.post(NoticeState(), message(), {"mail": NOW, "chat": NOW})


def test_an_address_that_took_it_is_done_and_the_other_is_tried_again_ever_more_slowly() -> None:
    state, result = outbox.answered(posted(), "m1", "mail", None, NOW)
    assert result == outbox.Delivered(1)
    now, pauses = NOW, []
    for number in range(1, 9):
        state, result = outbox.answered(state, "m1", "chat", "SMTP 550", now)
        assert result == outbox.NotDelivered(number, "SMTP 550")
        after = outbox.next_at(state)
        assert after is not None
        assert outbox.due(state, after - timedelta(seconds=1)) == ()
        assert [w.address for _, w in outbox.due(state, after)] == ["chat"]
        pauses.append((after - now).total_seconds())
        now = after
    assert pauses == [30, 60, 120, 240, 480, 900, 900, 900]
    state, result = outbox.answered(state, "m1", "chat", None, now)
    assert (result, state.outbox) == (outbox.Delivered(9), ())


def test_a_day_without_delivery_is_the_end() -> None:
    state, result = outbox.answered(posted(), "m1", "chat", "gone", NOW + timedelta(days=1))
    assert result == outbox.GivenUp(1, "gone")
    assert [w.address for _, w in outbox.due(state, NOW)] == ["mail"]


def test_the_outbox_is_bounded() -> None:
    state = NoticeState()
    for number in range(outbox.MOST_PENDING + 3):
        state = outbox.post(state, replace(message(), id=f"m{number}"), {"mail": NOW})
    assert (len(state.outbox), state.outbox[0].message.id) == (outbox.MOST_PENDING, "m3")


def test_an_address_that_is_no_longer_configured_is_dropped() -> None:
    state = outbox.dropped(posted(), ["mail"])
    assert [w.address for p in state.outbox for w in p.waits] == ["mail"]
    assert outbox.dropped(state, []).outbox == ()


@pytest.mark.parametrize(
    ("last", "due"),
    [
        (datetime(2026, 7, 1, 5, 59, tzinfo=UTC), True),  # before 08:00 in Berlin
        (datetime(2026, 7, 1, 6, 0, tzinfo=UTC), False),
        (None, False),
    ],
)
def test_the_summary_is_made_once_a_day(last: datetime | None, due: bool) -> None:
    assert healed.digest_due(time(8), BERLIN, last, NOW) is due


VALID = NOW - timedelta(minutes=9)
BACK = replace(
    incident(), state=IncidentState.CLOSED, closed_at=NOW, validated_at=VALID, opened_at=NOW - timedelta(hours=1)
)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, True),
        ({"validated_at": None}, False),
        ({"acknowledged": True}, False),
        ({"closed_at": NOW - timedelta(hours=2)}, False),
    ],
)
def test_what_counts_as_healed(changed: dict[str, object], told: bool) -> None:
    found = healed.healed(Book(incidents={"a": replace(BACK, **changed)}), NOW - timedelta(hours=1))  # type: ignore[arg-type]
    assert bool(found) is told


def test_the_summary_names_what_waits_and_what_was_repaired() -> None:
    waits = replace(BACK, id="w", node="n2", state=IncidentState.AWAITING_HUMAN, closed_at=None, note="no rung is left")
    day = healed.DigestDay(NOW, (BACK, waits), (), NoticeState(), Book())
    summary = healed.digest(day)
    assert (
        summary.subject == "2 incidents in 24 h, 1 repaired; 1 incident waiting for an operator, 0 of 0 jobs run again"
    )
    assert "n2: no rung is left (incident w)" in summary.body
    assert f"{BACK.node}: {BACK.headline}" in summary.body
