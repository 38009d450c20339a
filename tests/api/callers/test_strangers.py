"""Clients without a valid token wait for a turn: a stranger's flood delays no heartbeat, and polls of ``/healthz`` are answered."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest

from holdfast.api.callers.stranger_turns import CROWD, StrangerBounds, Strangers, StrangerTurns, Waiter
from holdfast.api.reads import status
from holdfast.api.transport.connections import Bounds, Connections
from support.serving import Running, answer, running, until

BEAT = b'{"version": 1, "node": "n1", "instance_id": "i-1", "boot_id": "b", "interval_s": 10}'
HEARTBEAT = (
    b"POST /v1/heartbeats HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token-n1\r\nContent-Length: %d\r\n\r\n"
    % len(BEAT)
) + BEAT
HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
PROMPT_S = 3.0
"""Longest answer that did not wait its turn behind a flood, on a busy machine; a turn takes ten seconds and more."""


class TestTurns:
    @pytest.fixture
    def waiters(self) -> Iterator[list[Waiter]]:
        loop = asyncio.new_event_loop()
        yield [asyncio.Future(loop=loop) for _ in range(10)]
        loop.close()

    def test_are_one_of_each_address_after_another(self, waiters: list[Waiter]) -> None:
        turns = StrangerTurns(StrangerBounds())
        for n in range(5):
            turns.add("flood", waiters[n], many_behind=False)
        turns.add("monitor", waiters[5], many_behind=False)
        assert [turns.next(0.0)[0] for _ in range(6)] == [waiters[n] for n in (0, 5, 1, 2, 3, 4)]
        assert turns.count == 0

    def test_of_one_address_are_bounded_and_others_go_on(self, waiters: list[Waiter]) -> None:
        turns = StrangerTurns(StrangerBounds(address_burst=1, address_per_s=2))
        for n in range(3):
            turns.add("flood", waiters[n], many_behind=False)
        turns.add("monitor", waiters[3], many_behind=False)
        assert [turns.next(0.0)[0] for _ in range(2)] == [waiters[0], waiters[3]]
        found, wait_s = turns.next(0.0)
        assert found is None
        assert 0 < wait_s < 1
        assert turns.next(1.0) == (waiters[1], 0.0)

    def test_of_a_proxy_are_bounded_by_the_bound_in_all_alone(self, waiters: list[Waiter]) -> None:
        turns = StrangerTurns(StrangerBounds(burst=3, per_s=1, address_burst=1, address_per_s=0.001))
        for n in range(5):
            turns.add("proxy", waiters[n], many_behind=True)
        assert [turns.next(0.0)[0] for _ in range(4)] == [*waiters[:3], None]
        assert turns.next(1.1)[0] is waiters[3]

    def test_go_to_nobody_who_has_left(self, waiters: list[Waiter]) -> None:
        turns = StrangerTurns(StrangerBounds())
        for n in range(3):
            turns.add("a", waiters[n], many_behind=False)
        for n in (0, 2, 2):
            turns.drop("a", waiters[n])
        assert turns.count == 1
        assert turns.next(0.0)[0] is waiters[1]

    def test_remember_few_addresses(self, waiters: list[Waiter]) -> None:
        turns = StrangerTurns(StrangerBounds(most_addresses=5))
        for n in range(10):
            turns.add(str(n), waiters[n], many_behind=False)
            turns.drop(str(n), waiters[n])
        assert len(turns._buckets) == 5


def test_in_one_turn_of_the_loop_one_goes_on() -> None:
    async def gone_on() -> list[int]:
        strangers, connections = Strangers(), Connections(Bounds(100), time.monotonic)
        done: list[int] = []

        async def one(number: int) -> None:
            connection = connections.admit("192.0.2.1", lambda: None)
            assert connection is not None
            assert await strangers.turn("192.0.2.1", connection, many_behind=False)
            done.append(number)

        tasks = [asyncio.create_task(one(n)) for n in range(20)]
        seen = []
        while len(done) < 20:
            await asyncio.sleep(0)
            seen.append(len(done))
        await asyncio.gather(*tasks)
        return [after - before for before, after in zip([0, *seen], seen, strict=False)]

    assert max(asyncio.run(gone_on())) == 1


def test_a_connection_that_is_closed_takes_its_request_away(caplog: pytest.LogCaptureFixture) -> None:
    async def left() -> int:
        strangers, connections = (
            Strangers(StrangerBounds(burst=1, per_s=0.001)),
            Connections(Bounds(1000), time.monotonic),
        )
        made = [connections.admit("127.0.0.1", lambda: None) for _ in range(CROWD + 5)]
        waiting = [
            asyncio.create_task(strangers.turn(each.address, each, many_behind=True))
            for each in made
            if each is not None
        ]
        await asyncio.sleep(0.05)
        assert strangers.waiting > len(made) - 5
        for each in made:
            assert each is not None
            connections.left(each)
        assert (await asyncio.gather(*waiting)).count(False) > len(made) - 5
        return strangers.waiting

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(left()) == 0
    assert [r.getMessage().split()[0] for r in caplog.records] == ["event=strangers_wait"]


def test_what_readyz_says_is_found_out_once_a_second(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 2,000 nodes each took 10 ms of the event loop."""
    asked: list[None] = []

    def vitals(*arguments: Any) -> Any:
        asked.append(None)
        return status.vitals(*arguments)

    monkeypatch.setattr("holdfast.api.health.vitals", vitals)

    async def flood(client: httpx.AsyncClient) -> None:
        for _ in range(50):
            await client.get("/readyz")

    served.run(flood)
    assert len(asked) == 1
    served.clock.passed_s += 1.0
    served.run(flood)
    assert len(asked) == 2


@contextmanager
def flooding(made: Running, request: bytes, connections: int, source: str) -> Iterator[list[int]]:
    """Each connection sends the next request as soon as it is answered. Counts the answers."""
    stop, answers = threading.Event(), [0]

    def ask() -> None:
        own = [made.connect(source) for _ in range(connections)]
        for one in own:
            one.setblocking(False)
            with suppress(OSError):
                one.send(request)
        while not stop.wait(0.001):
            for one in own:
                with suppress(OSError):
                    answers[0] += one.recv(65_536).count(b"HTTP/1.1 ")
                    one.send(request)

    flood = threading.Thread(target=ask)
    flood.start()
    try:
        yield answers
    finally:
        stop.set()
        flood.join()


def took_s(made: socket.socket, request: bytes) -> float:
    began_s = time.monotonic()
    assert b" 200 " in answer(made, request)
    return time.monotonic() - began_s


@pytest.mark.slow
@pytest.mark.parametrize(
    "request_", [b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /v1/nodes HTTP/1.1\r\nHost: x\r\n\r\n",
                 b"GET /v1/nodes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer made-up\r\n\r\n"]
)  # fmt: skip
def test_a_flood_holds_up_no_heartbeat_and_no_monitor(
    served: Any, monkeypatch: pytest.MonkeyPatch, request_: bytes
) -> None:
    monkeypatch.setattr(Bounds, "many_behind", lambda _bounds, _address: False)
    served.app.state.api.strangers = Strangers(StrangerBounds(burst=10, per_s=50, address_burst=5, address_per_s=10))
    with running(served.app, Bounds(500)) as made:
        kept, monitor = made.connect("127.0.0.3"), made.connect("127.0.0.4")
        took_s(kept, HEARTBEAT)
        with flooding(made, request_, 100, "127.0.0.2") as answers:
            began_s = time.monotonic()
            until(lambda: answers[0] > 5)
            for _ in range(5):
                assert took_s(kept, HEARTBEAT) < PROMPT_S
                assert took_s(made.connect("127.0.0.3"), HEARTBEAT) < PROMPT_S
                assert took_s(monitor, HEALTHZ) < PROMPT_S
                assert took_s(made.connect("127.0.0.4"), HEALTHZ) < PROMPT_S
                time.sleep(0.2)
            assert answers[0] <= 5 + 11 * (time.monotonic() - began_s) + 5
        until(lambda: served.app.state.api.strangers.waiting == 0)


@pytest.mark.slow
def test_a_users_token_takes_turns_of_its_own(served: Any) -> None:
    served.app.state.api.strangers = Strangers(StrangerBounds(address_burst=5, address_per_s=10))
    request = b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token-1001\r\n\r\n"
    with running(served.app, Bounds(500)) as made:
        kept = made.connect()
        took_s(kept, HEARTBEAT)
        with flooding(made, request, 50, "127.0.0.1") as answers:
            began_s = time.monotonic()
            until(lambda: answers[0] > 5)
            assert took_s(kept, HEARTBEAT) < PROMPT_S
            assert took_s(made.connect(), HEALTHZ) < PROMPT_S
            time.sleep(1)
            assert answers[0] <= 5 + 11 * (time.monotonic() - began_s) + 5
