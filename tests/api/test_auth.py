"""Tokens cost no query per request, end in time, and never travel in the clear beyond this machine."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import anyio
import httpx
import pytest

from holdfast.api.app import create_app
from holdfast.api.auth import REFRESH_S, hash_token
from holdfast.api.deps import ApiSettings
from holdfast.api.server import build_server
from holdfast.config.binding import check_bind, is_loopback
from holdfast.model.errors import ConfigError


def test_many_at_once_are_one_query(served: Any) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        async with anyio.create_task_group() as group:
            for _ in range(50):
                group.start_soon(client.get, "/v1/nodes")

    served.run(work)
    assert (served.store.token_reads, served.store.token_lookups) == (1, 0)


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
