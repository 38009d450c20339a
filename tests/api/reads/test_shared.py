"""A costly answer that is the same for all is made once a second, however many terminals poll it; a user's answer is made for that user."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import anyio
import httpx
import pytest
from starlette.responses import Response

from holdfast.api.shared import SharedAnswers
from holdfast.model.book import Book, World
from holdfast.model.policies.policy import Policy

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Costly:
    """A query that takes a while of a core."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, *_: Any, **__: Any) -> tuple[()]:
        self.times += 1
        began_s = time.thread_time()
        while time.thread_time() - began_s < 0.05:
            pass
        return ()


@pytest.fixture
def costly(served: Any, monkeypatch: pytest.MonkeyPatch) -> Costly:
    made = Costly()
    monkeypatch.setattr(served.store, "list_incidents", made)
    monkeypatch.setattr(served.store, "recoveries", made)
    return made


@pytest.mark.slow
def test_fifty_terminals_on_one_token_cost_one_answer_a_second(served: Any, costly: Costly) -> None:
    statuses: Counter[int] = Counter()

    async def watch(client: httpx.AsyncClient) -> None:
        async def one() -> None:
            statuses[(await client.get("/v1/incidents")).status_code] += 1

        await one()
        for _ in range(3):
            served.clock.passed_s += 2
            async with anyio.create_task_group() as tasks:
                for _ in range(50):
                    tasks.start_soon(one)

    served.run(watch, "eve")
    assert statuses == {200: 151}
    assert costly.times == 4


def test_those_who_see_the_same_share_it_and_another_query_does_not(served: Any, costly: Costly) -> None:
    for who, path in (("eve", ""), ("op", ""), ("op", "?limit=5"), ("op", "?limit=5"), ("op", "?limit=6")):
        assert served.call("GET", f"/v1/incidents{path}", who).status_code == 200
    assert costly.times == 3
    assert served.call("GET", "/v1/incidents", "1001").status_code == 403
    assert served.call("GET", "/v1/incidents", None).status_code == 401


def test_what_a_user_sees_is_not_shared(served: Any, costly: Costly) -> None:
    for _ in range(3):
        assert served.call("GET", "/v1/jobs", "1001").status_code == 200
    assert costly.times == 3


def test_who_changes_something_sees_it_at_once(served: Any, costly: Costly) -> None:
    for _ in range(2):
        assert served.call("GET", "/v1/incidents").status_code == 200
        assert served.call("POST", "/v1/resume", json={"reason": "x"}).status_code == 200
    assert costly.times == 2


@pytest.mark.slow
def test_few_are_kept(served: Any, costly: Costly) -> None:
    for limit in range(1, 13):
        served.call("GET", f"/v1/incidents?limit={limit}")
    assert len(served.app.state.api.shared._costly) == 8


def test_nobody_waits_for_the_turn_of_another_token() -> None:
    """A viewer with many other requests, whose turn was far away, delayed the answer for all."""

    async def main() -> None:
        shared, mine = SharedAnswers(time.monotonic), anyio.Event()

        async def make() -> tuple[Response, float]:
            return Response("all"), 1.0

        @asynccontextmanager
        async def far_away() -> AsyncIterator[None]:
            await mine.wait()
            yield

        await shared.answer("/v1/nodes?", make)
        shared.forget()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shared.answer, "/v1/nodes?", make, far_away, "eve")
            await anyio.wait_all_tasks_blocked()
            with anyio.fail_after(3):
                await shared.answer("/v1/nodes?", make, who="op")
            mine.set()

    anyio.run(main)


class TestTags:
    def test_what_a_client_has_is_not_sent_again(self, served: Any) -> None:
        first = served.call("GET", "/v1/incidents")
        tag = first.headers["etag"]
        for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            again = served.call("GET", "/v1/incidents", "eve", headers={"If-None-Match": known})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        other = served.call("GET", "/v1/incidents", headers={"If-None-Match": '"other"'})
        assert (other.status_code, other.json()) == (200, first.json())

    def test_of_a_costly_answer_that_is_shared_too(self, served: Any, costly: Costly) -> None:
        tags = {served.call("GET", "/v1/incidents").headers["etag"] for _ in range(3)}
        assert (len(tags), costly.times) == (1, 1)
        got = served.call("GET", "/v1/incidents", headers={"If-None-Match": tags.pop()})
        assert (got.status_code, costly.times) == (304, 1)

    def test_a_change_changes_it(self, served: Any) -> None:
        before = served.call("GET", "/v1/nodes").headers["etag"]
        served.world = World(T0, Policy(), Book(paused="op: x"), None)
        got = served.call("GET", "/v1/nodes", headers={"If-None-Match": before})
        assert (got.status_code, got.json()["paused"]) == (200, "op: x")

    def test_it_opens_nothing(self, served: Any) -> None:
        """A guessed tag shows no one what they may not see."""
        tag = served.call("GET", "/v1/incidents").headers["etag"]
        for who, status in (("1001", 403), ("n1", 403), (None, 401)):
            assert served.call("GET", "/v1/incidents", who, headers={"If-None-Match": tag}).status_code == status

    def test_an_error_and_a_users_answer_have_none(self, served: Any) -> None:
        assert "etag" not in served.call("GET", "/v1/incidents?limit=0").headers
        assert "etag" not in served.call("GET", "/v1/jobs", "1001").headers
