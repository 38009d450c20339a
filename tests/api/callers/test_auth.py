"""Tokens cost no query per request, end in time, and never travel in the clear beyond this machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import anyio
import httpx
import pytest

from api.conftest import T0
from holdfast.api.app import create_app
from holdfast.api.callers.auth import REFRESH_S, hash_token
from holdfast.api.deps import ApiSettings
from holdfast.api.transport.server import build_server
from holdfast.config.binding import check_bind, is_loopback
from holdfast.model.errors import ConfigError, Unavailable


@pytest.mark.slow
def test_many_at_once_are_one_query(served: Any) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        async with anyio.create_task_group() as group:
            for _ in range(50):
                group.start_soon(client.get, "/v1/nodes")

    served.run(work)
    assert (served.store.token_reads, served.store.token_lookups) == (1, 0)


@pytest.mark.slow
def test_a_new_token_works_at_once_and_a_wrong_one_costs_one_query_in_two_seconds(served: Any) -> None:
    assert served.call("GET", "/v1/nodes").status_code == 200
    for _ in range(3):
        assert served.call("GET", "/v1/nodes", "stranger").status_code == 401
    assert served.store.token_lookups == 1
    served.store.add_token("viewer", "new", hash_token("token-new"), served.clock.now())
    assert served.call("GET", "/v1/nodes", "new").status_code == 200


def test_an_expired_token_ends_at_its_time(served: Any) -> None:
    until = served.clock.now() + timedelta(seconds=5)
    served.store.add_token("viewer", "brief", hash_token("token-brief"), served.clock.now(), until)
    assert served.call("GET", "/v1/nodes", "brief").status_code == 200
    served.clock.passed_s = 6.0
    assert served.call("GET", "/v1/nodes", "brief").status_code == 401


def test_a_database_away_for_too_long_ends_every_token(served: Any) -> None:
    assert served.call("GET", "/v1/nodes").status_code == 200
    served.store.away = True
    for passed_s, status in ((REFRESH_S + 1, 200), (3000.0, 200), (4000.0, 503)):
        served.clock.passed_s = passed_s
        assert served.call("GET", "/v1/nodes").status_code == status


def test_a_database_that_is_away_at_the_start_is_not_asked_by_each_in_turn(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request may take five seconds, and they are sent one after the other."""
    served.store.away = True
    asked, plain = list[bool](), served.store.tokens

    def tokens() -> Any:
        asked.append(True)
        return plain()

    monkeypatch.setattr(served.store, "tokens", tokens)

    async def work(client: httpx.AsyncClient) -> None:
        async with anyio.create_task_group() as group:
            for _ in range(50):
                group.start_soon(client.get, "/v1/nodes")

    served.run(work)
    assert len(asked) == 1
    served.store.away = False
    served.clock.passed_s = 3.0
    assert served.call("GET", "/v1/nodes").status_code == 200


def last_used(served: Any, subject: str) -> list[datetime | None]:
    return [row.last_used_at for row in served.store.tokens() if row.subject == subject]


def test_a_tokens_use_is_recorded_once_an_hour_and_not_at_every_request(served: Any) -> None:
    for passed_s in (0.0, 10.0, REFRESH_S + 1, 100.0, 1000.0, 3000.0):
        served.clock.passed_s = passed_s
        assert served.call("GET", "/v1/nodes").status_code == 200
    assert last_used(served, "op") == [T0]
    assert last_used(served, "eve") == [None]
    assert len(served.store.uses_recorded) == 1
    for passed_s in (3601.0, 3650.0):
        served.clock.passed_s = passed_s
        assert served.call("GET", "/v1/nodes").status_code == 200
    assert last_used(served, "op") == [T0 + timedelta(seconds=3601)]


def test_a_store_that_takes_no_write_keeps_nobody_out(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_uses: Any) -> Any:
        raise Unavailable("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(served.store, "tokens_used", full)
        for passed_s in (0.0, REFRESH_S + 1, 2 * REFRESH_S + 2):
            served.clock.passed_s = passed_s
            assert served.call("GET", "/v1/nodes").status_code == 200
    served.clock.passed_s = 100.0
    assert served.call("GET", "/v1/nodes").status_code == 200
    assert last_used(served, "op") == [T0 + timedelta(seconds=2 * REFRESH_S + 2)]


BEAT = {"version": 1, "node": "n1", "instance_id": "i-1", "boot_id": "b", "interval_s": 10.0, "all_ok": True}


def beats(served: Any, who: str, times_s: Iterable[float]) -> list[int]:
    """The answers to heartbeats of n1 at these times."""
    answers = []
    for served.clock.passed_s in times_s:
        answers.append(served.call("POST", "/v1/heartbeats", who, json=BEAT).status_code)
    return answers


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [r.getMessage() for r in caplog.records if f"event={event} " in r.getMessage()]


def add_new(served: Any) -> None:
    served.store.add_token("agent", "n1", hash_token("token-new"), T0 + timedelta(seconds=1))


@pytest.mark.slow
def test_an_older_token_of_a_node_ends_once_it_was_not_used_for_ten_minutes(
    served: Any, caplog: pytest.LogCaptureFixture
) -> None:
    add_new(served)
    assert set(beats(served, "n1", range(2, 1400, 20))) == {200}, "until the new one is used, nothing ends"
    assert set(beats(served, "new", range(1400, 1980, 20))) == {200}
    assert beats(served, "n1", [1981]) == [200], "not yet: and this use begins the ten minutes again"
    assert set(beats(served, "new", range(1990, 2560, 20))) == {200}
    assert lines(caplog, "token_replaced") == []
    assert set(beats(served, "new", range(2560, 2700, 20))) == {200}
    assert beats(served, "n1", [2701]) == [401]
    assert beats(served, "new", [90_000, 9_000_000]) == [200, 200]
    (line,) = lines(caplog, "token_replaced")
    assert "node=n1" in line
    assert hash_token("token-n1")[:12] in line


@pytest.mark.slow
def test_a_healthy_node_that_goes_on_with_its_older_token_is_not_shut_out(
    served: Any, caplog: pytest.LogCaptureFixture
) -> None:
    add_new(served)
    for begin in range(2, 7200, 20):
        assert beats(served, "new", [begin]) + beats(served, "n1", [begin + 10]) == [200, 200]
    (line,) = lines(caplog, "token_replaced_in_use")
    assert all(word in line for word in ("node=n1", hash_token("token-n1")[:12], hash_token("token-new")[:12]))
    rows = {row.hash: row for row in served.store.tokens()}
    now = served.clock.now()
    for token in ("token-n1", "token-new"):
        used_at = rows[hash_token(token)].last_used_at
        assert used_at is not None
        assert now - used_at < timedelta(minutes=3), "the other controller and the doctor see it too"


@pytest.mark.slow
def test_a_token_that_was_tried_once_elsewhere_ends_none(served: Any) -> None:
    add_new(served)
    assert beats(served, "new", [2]) == [200]
    assert set(beats(served, "n1", range(10, 3000, 30))) == {200}
    served.clock.passed_s = 5000.0
    assert served.call("GET", "/v1/nodes").status_code == 200
    assert beats(served, "n1", [5060]) == [200], "the node was away: the newer one was not used meanwhile"


@pytest.mark.slow
def test_silence_of_the_controller_is_no_silence_of_the_node(served: Any) -> None:
    add_new(served)
    beats(served, "n1", range(2, 100, 10))
    beats(served, "new", range(100, 500, 10))
    beats(served, "new", range(1300, 1800, 10))
    assert beats(served, "n1", [1805]) == [200], "nothing was received for 800 s: ten minutes begin again"


def test_the_holder_of_a_refused_token_is_told_why(served: Any) -> None:
    add_new(served)
    brief = T0 + timedelta(seconds=30)
    served.store.add_token("viewer", "brief", hash_token("token-brief"), T0, brief)
    served.store.add_token("viewer", "gone", hash_token("token-gone"), T0)
    served.store.revoke_token(hash_token("token-gone"))
    beats(served, "n1", [2])
    beats(served, "new", range(10, 800, 20))

    def why(who: str) -> str:
        answer = served.call("GET", "/v1/nodes", who)
        assert answer.status_code == 401
        message: str = answer.json()["error"]["message"]
        return message

    assert "is not known here" in why("stranger")
    assert "was revoked" in why("gone")
    assert f"ended at {brief.isoformat(timespec='seconds')}" in why("brief")
    assert "newer" not in why("brief")
    ended = why("n1")
    assert f"a newer one of n1, {hash_token('token-new')[:12]}, was used" in ended
    assert "ended at 2" in ended


@pytest.mark.parametrize(("role", "subject"), [("user", "ann"), ("root", "me")])
def test_a_token_that_is_bound_to_nothing_is_refused(served: Any, role: str, subject: str) -> None:
    served.store.add_token(role, subject, hash_token(f"token-{subject}"), served.clock.now())
    assert served.call("GET", "/v1/jobs", subject).status_code == 401


def test_too_many_waiting_reports_are_503_at_once(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "app", create_app(replace(served.deps, settings=ApiSettings(max_reports=0))))
    body = {"version": 1, "node": "n1", "boot_id": "b", "outbox_id": "o", "sequence": 1}
    answer = served.call("POST", "/v1/reports", "n1", json=body)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert served.store.reports == []


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("head", False),
        ("::", False),
    ],
)
def test_only_loopback_without_tls(served: Any, host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
    if loopback:
        check_bind(host, None, None)
        return
    with pytest.raises(ConfigError, match="TLS is not set"):
        build_server(served.app, host=host, port=0)
    check_bind(host, "cert.pem", "key.pem")
