"""``/v1/notices``: the newest messages, each with what its addresses answered."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.model.book import Change
from holdfast.model.event import Event, EventKind

K = EventKind


def told(served: Any, number: int, minutes_ago: float) -> tuple[Event, ...]:
    """A message, and two addresses that took it."""
    at = served.clock.now() - timedelta(minutes=minutes_ago)
    detail = {"message": f"m{number}", "level": "healed", "topic": "other", "addresses": ["chat", "mail"]}
    made = Event(at, K.NOTICE_MADE, None, text=f"message {number}", detail=detail)
    return made, *(
        Event(at, K.NOTICE_DELIVERED, None, detail={**detail, "address": address, "attempts": 1})
        for address in ("chat", "mail")
    )


def asked(served: Any, **params: Any) -> list[tuple[str, list[str]]]:
    got = served.call("GET", "/v1/notices", params=params).json()["notices"]
    return [(n["subject"], [d["outcome"] for d in n["deliveries"]]) for n in got]


def test_the_newest_come_first_with_their_deliveries(served: Any) -> None:
    assert asked(served) == []
    for number in range(3):
        served.commit(Change(events=told(served, number, 60 - number)))
    taken = ["delivered", "delivered"]
    assert asked(served, limit=2) == [("message 2", taken), ("message 1", taken)]
    waiting = told(served, 3, 0)[:1]
    served.commit(Change(events=waiting))
    assert asked(served, limit=1) == [("message 3", ["waiting", "waiting"])]


@pytest.mark.slow
def test_of_a_year_of_messages_the_newest_are_answered(served: Any) -> None:
    """More than one query of events returns."""
    served.commit(Change(events=tuple(e for n in range(3_400) for e in told(served, n, 10_000 - n))))
    since = (served.clock.now() - timedelta(days=30)).isoformat()
    assert [subject for subject, _ in asked(served, since=since, limit=2)] == ["message 3399", "message 3398"]
