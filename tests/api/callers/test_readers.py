"""What one token may request, whatever its role: far more than users and programs need, but never so much that others wait for it."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from typing import Any

import anyio
import httpx
import pytest

from holdfast.api.callers.auth import LOOKUPS_AT_ONCE, RETRY_S, Authenticator, Principal, Role, hash_token
from holdfast.api.callers.readers import ReaderBounds, ReaderQuotas
from holdfast.api.errors import ApiError
from holdfast.api.transport.connections import Bounds, Connections, ConnectionStage

ENVELOPE = {"version": 1, "node": "n1", "instance_id": "i-1", "boot_id": "b-1", "agent_version": "0.1"}
EVE = Principal("eve", Role.VIEWER, token="a1")
SHIPPED = ReaderBounds()


class Gate:
    """A query of the store that lasts until the test ends it; counts how many run at a time."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.open = threading.Event()
        self.most = self._now = 0
        self._lock = threading.Lock()

    def __call__(self, *_: Any, **__: Any) -> Any:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        assert self.open.wait(30)
        with self._lock:
            self._now -= 1
        return self.answer


def bound(served: Any, **bounds: Any) -> None:
    served.app.state.api.readers = ReaderQuotas(served.clock.monotonic_s, ReaderBounds(**bounds))


ROUTES = [
    ("eve", "GET", "/v1/nodes"),
    ("eve", "GET", "/metrics"),
    ("op", "GET", "/v1/incidents"),
    ("op", "POST", "/v1/resume"),
    ("1001", "GET", "/v1/jobs"),
    ("n1", "GET", "/v1/agent/self"),
    ("n1", "GET", "/openapi.json"),
]


class TestRequests:
    @pytest.mark.parametrize(("who", "method", "path"), ROUTES)
    def test_of_each_role_are_bounded_and_come_back_in_time(
        self, served: Any, who: str, method: str, path: str
    ) -> None:
        bound(served, requests=5, requests_per_s=0.5)
        body = {"json": {"reason": "x"}} if method == "POST" else {}
        for _ in range(5):
            assert served.call(method, path, who, **body).status_code < 300
        refused = served.call(method, path, who, **body)
        assert refused.status_code == 429
        assert refused.headers["Retry-After"] == "1"
        assert refused.json()["error"]["code"] == "too_many"
        assert refused.json()["error"]["message"].endswith(
            "more than 0.5 requests a second, the quota of one token: each person and each program needs its own; try again in 1 s"
        )
        served.clock.passed_s += 2.1
        assert served.call(method, path, who, **body).status_code < 300

    def test_of_one_token_are_no_others(self, served: Any) -> None:
        bound(served, requests=1, requests_per_s=0.1)
        assert served.call("GET", "/v1/nodes", "eve").status_code == 200
        assert served.call("GET", "/v1/nodes", "eve").status_code == 429
        assert served.call("GET", "/v1/nodes", "op").status_code == 200
        assert served.call("POST", "/v1/heartbeats", "n1", json={**ENVELOPE, "interval_s": 10}).status_code == 200
        assert served.call("GET", "/healthz", None).status_code == 200

    def test_a_body_is_not_read_of_what_is_refused(self, served: Any) -> None:
        bound(served, requests=1, requests_per_s=0.1)
        served.call("POST", "/v1/resume", "op", json={"reason": "x"})
        assert served.call("POST", "/v1/resume", "op", content=b"x" * (1 << 20)).status_code == 429

    def test_as_shipped_fit_a_script_in_a_loop(self) -> None:
        at_s = 0.0
        readers = ReaderQuotas(lambda: at_s)
        for _ in range(1200):  # a minute of ten a second, and a burst
            readers.ask(EVE)
            at_s += 0.05

    def test_as_shipped_end_a_flood(self) -> None:
        readers = ReaderQuotas(lambda: 0.0)
        for _ in range(int(SHIPPED.requests)):
            readers.ask(EVE)
        with pytest.raises(ApiError):
            readers.ask(EVE)

    def test_what_is_refused_is_a_line_a_minute(self, caplog: pytest.LogCaptureFixture) -> None:
        at_s = 0.0
        readers = ReaderQuotas(lambda: at_s, ReaderBounds(requests=1, requests_per_s=0.001))
        readers.ask(EVE)
        with caplog.at_level(logging.WARNING):
            for _ in range(50):
                with pytest.raises(ApiError):
                    readers.ask(EVE)
            assert len(caplog.records) == 1
            at_s = 61.0
            readers.ask(EVE)
            with pytest.raises(ApiError):
                readers.ask(EVE)
        assert len(caplog.records) == 2
        assert "role=viewer name='eve'" in caplog.text

    def test_answers_that_are_not_read_are_not_added_to(self) -> None:
        readers = ReaderQuotas(lambda: 0.0)
        readers.ask(EVE, unread=SHIPPED.unread)
        with pytest.raises(ApiError, match="answers that are not read"):
            readers.ask(EVE, unread=SHIPPED.unread + 1)


def test_the_connections_of_a_token_that_read_nothing_are_counted() -> None:
    connections = Connections(Bounds(10), lambda: 0.0)
    made = [connections.admit("192.0.2.1", lambda: None) for _ in range(3)]
    for each in made:
        assert each is not None
        connections.identified(each, "viewer/eve", agent=False)
        connections.enter(each, ConnectionStage.ANSWERING, None)
        connections.unread(each, True)
    assert connections.unread_by("viewer/eve") == 3
    assert made[0] is not None
    connections.unread(made[0], False)
    assert connections.unread_by("viewer/eve") == 2
    assert connections.unread_by("viewer/else") == connections.unread_by("") == 0


class TestAnswersAtATime:
    def test_of_one_token_are_two_and_few_wait(self, served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        gate = Gate(())
        monkeypatch.setattr(served.store, "list_incidents", gate)
        statuses: Counter[int] = Counter()
        most = SHIPPED.at_once + SHIPPED.waiting

        async def flood(client: httpx.AsyncClient) -> None:
            async def one() -> None:
                statuses[(await client.get("/v1/incidents")).status_code] += 1

            async with anyio.create_task_group() as tasks:
                for _ in range(60):
                    tasks.start_soon(one)
                with anyio.fail_after(20):
                    while statuses[429] < 60 - most:
                        await anyio.sleep(0.01)
                    # Meanwhile others are answered, and an order of the same token too.
                    async with served.client("op") as other:
                        assert (await other.get("/v1/nodes")).status_code == 200
                        assert (await other.post("/v1/resume", json={"reason": "x"})).status_code == 200
                    async with served.client("n1") as agent:
                        beat = {**ENVELOPE, "interval_s": 10}
                        assert (await agent.post("/v1/heartbeats", json=beat)).status_code == 200
                    assert (await client.get("/healthz")).status_code == 200
                gate.open.set()

        served.run(flood, "eve")
        assert statuses == {200: most, 429: 60 - most}
        assert gate.most == SHIPPED.at_once
        assert served.call("GET", "/v1/incidents", "eve").status_code == 200

    def test_of_all_tokens_leave_a_thread_for_the_tokens(self, served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        gate = Gate(())
        monkeypatch.setattr(served.store, "list_incidents", gate)

        async def flood(client: httpx.AsyncClient) -> None:
            async with served.client("op") as other, anyio.create_task_group() as tasks:
                for each in (client, other):
                    for _ in range(10):
                        tasks.start_soon(each.get, "/v1/incidents")
                await anyio.sleep(0.3)
                with anyio.fail_after(20):
                    served.clock.passed_s += 40  # all tokens are read again
                    async with served.client("n1") as agent:
                        beat = {**ENVELOPE, "interval_s": 10}
                        assert (await agent.post("/v1/heartbeats", json=beat)).status_code == 200
                gate.open.set()

        served.run(flood, "eve")
        assert gate.most == SHIPPED.at_once_in_all

    def test_what_an_answer_costs_counts(self, served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        bound(served, work_s=0.05, work_per_s=0.01)

        def costly(*_: Any, **__: Any) -> tuple[()]:
            began_s = time.thread_time()
            while time.thread_time() - began_s < 0.2:
                pass
            return ()

        monkeypatch.setattr(served.store, "list_incidents", costly)
        assert served.call("GET", "/v1/incidents", "eve").status_code == 200
        refused = served.call("GET", "/v1/nodes", "eve")
        assert refused.status_code == 429
        assert 10 <= int(refused.headers["Retry-After"]) <= 30
        assert served.call("GET", "/v1/nodes", "op").status_code == 200
        assert served.call("POST", "/v1/resume", "op", json={"reason": "x"}).status_code == 200
        served.clock.passed_s += 60
        assert served.call("GET", "/v1/nodes", "eve").status_code == 200

    def test_an_answer_that_fails_gives_its_place_back(self, served: Any) -> None:
        served.store.away = True
        for _ in range(SHIPPED.at_once + SHIPPED.waiting + 5):
            assert served.call("GET", "/v1/incidents", "eve").status_code == 503
        served.store.away = False
        served.clock.passed_s += RETRY_S
        assert served.call("GET", "/v1/incidents", "eve").status_code == 200


def test_tokens_that_nobody_made_keep_no_others_from_being_read(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, statuses = Gate(None), Counter[int]()

    async def flood(client: httpx.AsyncClient) -> None:
        assert (await client.get("/v1/nodes")).status_code == 200
        monkeypatch.setattr(served.store, "find_token", gate)

        async def one(number: int) -> None:
            headers = {"Authorization": f"Bearer made-up-{number}"}
            statuses[(await client.get("/v1/nodes", headers=headers)).status_code] += 1

        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(one, number)
            with anyio.fail_after(20):
                while statuses[503] < 200 - LOOKUPS_AT_ONCE:
                    await anyio.sleep(0.01)
            gate.open.set()

    served.run(flood, "op")
    assert statuses == {503: 200 - LOOKUPS_AT_ONCE, 401: LOOKUPS_AT_ONCE}


@pytest.mark.slow
def test_tokens_that_nobody_made_keep_a_new_one_out_for_two_seconds_at_most(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was unknown, no look-up was free while the flood used all of them, and it waited for the next reading: 30 s."""
    gate = Gate(None)
    # Threads enough for all look-ups at once, none of which ends here.
    served.app.state.api.auth = Authenticator(served.deps.store, anyio.to_thread.run_sync, served.clock)

    async def flood(client: httpx.AsyncClient) -> None:
        async def status(token: str) -> int:
            return (await client.get("/v1/nodes", headers={"Authorization": f"Bearer {token}"})).status_code

        assert await status("token-op") == 200
        monkeypatch.setattr(served.store, "find_token", gate)
        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(status, f"made-up-{number}")
            await anyio.sleep(0.3)
            served.store.add_token("viewer", "new", hash_token("token-new"), served.clock.now())
            reads = served.store.token_reads
            assert [await status("token-new") for _ in range(3)] == [503] * 3
            served.clock.passed_s += 2.1
            with anyio.fail_after(20):
                assert [await status("token-new") for _ in range(3)] == [200] * 3
                assert [await status(f"more-{n}") for n in range(20)] == [503] * 20
            assert served.store.token_reads == reads + 1
            gate.open.set()

    served.run(flood, "op")
