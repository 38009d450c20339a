"""`Idempotency-Key`: an order that is repeated is carried out once; and no key opens another token's answer."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

from api.orders.test_proposals import ID, a_record
from holdfast.api.callers.auth import hash_token
from holdfast.api.deps import Threads
from holdfast.api.errors import ApiError
from holdfast.model.book import Change
from holdfast.model.errors import Unavailable
from holdfast.model.event import EventKind
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.operators.idempotency import KEPT
from holdfast.store import idempotency
from support.store_nouns import incident


def pause(served: Any, reason: str = "a", who: str = "op", key: str = "deploy-42", path: str = "/v1/pause") -> Any:
    return served.call("POST", path, who, json={"reason": reason}, headers={"Idempotency-Key": key})


def pauses(served: Any) -> int:
    return len(served.store.events(kinds=(EventKind.PAUSED,)))


def test_a_repeated_order_is_answered_and_not_carried_out_again(served: Any) -> None:
    first, second = pause(served), pause(served)
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json() == second.json()
    assert ("idempotent-replayed" in first.headers, second.headers["idempotent-replayed"]) == (False, "true")
    assert pauses(served) == 1
    assert pause(served, key="deploy-43").status_code == 200
    assert served.call("POST", "/v1/pause", json={"reason": "a"}).status_code == 200
    assert pauses(served) == 3, "another key, and none, are other orders"


@pytest.mark.parametrize(("reason", "path"), [("b", "/v1/pause"), ("a", "/v1/resume"), ("a", "/v1/pause?x=1")])
def test_another_order_with_the_same_key_is_refused(served: Any, reason: str, path: str) -> None:
    pause(served)
    got = pause(served, reason, path=path)
    assert (got.status_code, got.json()["error"]["code"]) == (422, "key_reused")
    assert pauses(served) == 1


def test_a_key_is_a_tokens_own(served: Any) -> None:
    """Neither does another operator's key keep an order from being carried out, nor does it show the answer."""
    served.store.add_token("operator", "second", hash_token("token-second"), served.clock.now())
    pause(served)
    got = pause(served, "b", who="second")
    assert (got.status_code, "idempotent-replayed" in got.headers) == (200, False)
    assert pauses(served) == 2
    assert pause(served, who="eve").status_code == 403
    assert pause(served, who="nobody").status_code == 401


def test_what_was_refused_is_evaluated_again(served: Any) -> None:
    for _ in range(2):
        got = pause(served, path="/v1/brakes/drains/release")
        assert (got.status_code, got.json()["error"]["code"]) == (404, "not_found")
    assert pause(served).status_code == 200, "its key is free"


def test_what_may_have_been_done_is_not_done_again(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def times_out(*_: Any) -> None:
        raise Unavailable("the store did not write within 30 s")

    with monkeypatch.context() as patch:
        patch.setattr(served.store, "operate", times_out)
        assert pause(served).status_code == 503
    got = pause(served)
    assert (got.status_code, got.json()["error"]["code"]) == (409, "in_progress")
    assert "GET /v1/events" in got.json()["error"]["message"]
    assert pauses(served) == 0


def test_a_key_is_kept_for_a_day(served: Any) -> None:
    pause(served)
    served.clock.passed_s = KEPT.total_seconds() - 1
    served.refill()
    assert "idempotent-replayed" in pause(served).headers
    served.clock.passed_s += 2
    assert "idempotent-replayed" not in pause(served, "b").headers
    assert pauses(served) == 2


def test_one_token_keeps_so_many(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "MOST_KEYS", 2)
    assert [pause(served, key=f"k{n}").status_code for n in range(3)] == [200, 200, 409]
    served.clock.passed_s = timedelta(days=1, seconds=1).total_seconds()
    assert pause(served, key="k9").status_code == 200, "older ones are gone"


@pytest.mark.parametrize("key", ["", "a b", "x" * 129, "a\tb", "k;v", "../x"])
def test_a_key_that_is_none(served: Any, key: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    got = pause(served, key=key)
    assert (got.status_code, got.json()["error"]["field"]) == (422, "Idempotency-Key")
    assert pauses(served) == 0


@pytest.mark.parametrize("path", [f"/v1/proposals/{ID}.1/accept", f"/v1/incidents/{ID}/acknowledge"])
def test_an_order_that_is_done_is_not_answered_as_refused_for_want_of_room(
    served: Any, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Its key would be free again, and the order evaluated a second time."""
    served.commit(Change(incidents=(incident(ID, state=IncidentState.REPAIRING, proposals=(a_record(),)),)))

    async def full(*_: Any, **__: Any) -> None:
        raise ApiError(503, "unavailable", "Too many requests wait for the database; try again")

    monkeypatch.setattr(Threads, "read", full)
    first, second = pause(served, path=path), pause(served, path=path)
    assert (first.status_code, second.status_code) == (200, 200)
    assert second.headers["idempotent-replayed"] == "true"
    assert first.json() == second.json()
    assert len(served.store.events(kinds=(EventKind.OPERATOR,))) == 1
