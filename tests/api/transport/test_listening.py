"""Connections to the real server, over real sockets of this machine: slow senders are cut off, waits for an answer are not, and a flood of
connections keeps no agent out."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.sending.client import ControllerClient, Controllers
from holdfast.api.callers.auth import hash_token
from holdfast.api.transport import listening
from holdfast.api.transport.connections import TURNED_AWAY, Bounds, Ended
from support.descriptors import descriptors_left
from support.serving import BIG_BYTES, GET, Running, answer, lasted_s, running, small_app, spoken, until
from tls import authorities

pytestmark = pytest.mark.slow


@pytest.fixture(params=["httptools", "h11"])
def http(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both parsers of uvicorn."""
    return spoken(str(request.param), monkeypatch)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return authorities.former(tmp_path_factory.mktemp("tls") / "site")


@pytest.fixture(params=["plain", "tls"])
def quick(request: pytest.FixtureRequest, http: str, certificate: Path) -> Iterator[Running]:
    with running(small_app(), tls=certificate if request.param == "tls" else None) as made:
        yield made


class TestWhatTricklesEnds:
    def test_one_that_says_nothing(self, quick: Running) -> None:
        assert 0.4 < lasted_s(quick.connect()) < 3
        assert 0.4 < lasted_s(quick.client()) < 3
        assert quick.ended == {Ended.HEAD_LATE: 2}
        until(lambda: quick.connections.seen().open == 0)

    def test_a_handshake_that_trickles(self, quick: Running) -> None:
        """Without TLS a head that trickles."""
        assert lasted_s(quick.connect(), trickle=b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 9) < 3

    def test_a_head_that_trickles(self, quick: Running) -> None:
        assert 0.4 < lasted_s(quick.client(), trickle=b"GET / HTTP/1.1\r\nHost: " + b"x" * 999) < 3
        assert quick.ended == {Ended.HEAD_LATE: 1}

    def test_a_later_head_that_trickles(self, quick: Running) -> None:
        made = quick.client()
        for _ in range(3):
            assert b"200" in answer(made, GET)
            time.sleep(0.7)  # idle for longer than a head may take
        assert 0.4 < lasted_s(made, trickle=b"GET / HTTP/1.1\r\nHost: " + b"x" * 999) < 3
        assert quick.ended == {Ended.HEAD_LATE: 1}

    def test_empty_lines(self, quick: Running) -> None:
        assert lasted_s(quick.client(), trickle=b"\r\n") < 3
        made = quick.client()
        answer(made, GET)
        assert lasted_s(made, trickle=b"\r\n") < 4

    @pytest.mark.parametrize("path", [b"/refuses", b"/reads"])
    def test_a_body_that_trickles(self, quick: Running, path: bytes) -> None:
        """One that the route reads, and one after the answer."""
        made = quick.client()
        made.sendall(b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
        assert 0.8 < lasted_s(made, trickle=b"x") < 4
        assert quick.ended == {Ended.BODY_LATE: 1}

    def test_chunks_that_trickle(self, quick: Running) -> None:
        made = quick.client()
        made.sendall(b"POST /reads HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert 0.8 < lasted_s(made, trickle=b"1\r\nx\r\n") < 4

    def test_an_idle_one_after_a_body_that_came_after_its_answer(self, quick: Running) -> None:
        """uvicorn itself has no clock for it any more."""
        made = quick.client()
        assert b"401" in answer(made, b"POST /refuses HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n")
        made.sendall(b"xx")
        assert 1.5 < lasted_s(made) < 5
        assert quick.ended == {Ended.IDLE: 1}

    def test_an_answer_that_is_not_read(self, quick: Running) -> None:
        made = quick.client()
        made.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: bool(quick.ended))
        until(lambda: quick.connections.seen().open == 0)


class TestWhatTakesItsTimeLives:
    def test_a_long_poll(self, quick: Running) -> None:
        made = quick.client()
        assert b"slow" in answer(made, b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"quick" in answer(made, GET)
        assert quick.ended == {}

    def test_a_body_that_the_route_itself_reads_late(self, quick: Running) -> None:
        made, size = quick.client(), 3 << 20
        head = b"POST /reads/late HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size
        assert str(size).encode() in answer(made, head + b"x" * size)
        assert quick.ended == {}

    def test_an_answer_that_is_read_slowly(self, quick: Running) -> None:
        made = quick.client()
        made.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        made.settimeout(5)
        got, began_s = 0, time.monotonic()
        while got < BIG_BYTES:
            part = made.recv(1 << 20)
            assert part, f"closed after {got} bytes"
            got += len(part)
            if time.monotonic() - began_s < 2.5:
                time.sleep(0.1)
        assert quick.ended == {}

    def test_requests_in_a_row_and_many_at_once(self, quick: Running) -> None:
        made = quick.client()
        made.settimeout(5)
        for _ in range(20):
            made.sendall(GET * 2)
            found = b""
            while found.count(b'"quick"') < 2:
                found += made.recv(65_536)
        assert b"200" in answer(made, GET)
        assert quick.ended == {}


def test_a_kept_connection_ends_when_it_did_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """After KEEP_ALIVE_S, by uvicorn, in good order."""
    monkeypatch.setattr("holdfast.api.transport.server.KEEP_ALIVE_S", 1)
    with running(small_app()) as made:
        one = made.connect()
        answer(one, GET)
        assert 0.8 < lasted_s(one) < 1.9
        assert made.ended == {}


def comes_in(made: Running, source: str = "127.0.0.1") -> bool:
    """As an agent's next attempt."""
    try:
        return b"200" in answer(made.client(source), AGENT)
    except OSError:
        return False


AGENT = b"GET /v1/orders?node=n1&boot_id=b&wait_s=0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token-n1\r\n\r\n"
USER = b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token-1001\r\n\r\n"


class TestAFlood:
    """From loopback, which stands for many."""

    FLOOD = Bounds(40, 10, head_s=60.0)

    def test_of_silent_connections_keeps_no_agent_out(self, served: Any) -> None:
        with running(served.app, self.FLOOD) as made:
            agent = made.connect()
            assert b"200" in answer(agent, AGENT)
            stop = threading.Event()

            def flood() -> None:
                own: deque[socket.socket] = deque(maxlen=100)
                while not stop.wait(0.002):
                    with contextlib.suppress(OSError):
                        own.append(socket.create_connection(("127.0.0.1", made.port), 5))
                    if len(own) == own.maxlen:
                        own.popleft().close()
                for one in own:
                    one.close()

            attacker = threading.Thread(target=flood)
            attacker.start()
            try:
                until(lambda: sum(made.ended.get(kind, 0) for kind in TURNED_AWAY) > 100)
                assert made.connections.seen().open <= 40
                for _ in range(5):  # also one that connects again
                    until(lambda: comes_in(made))
                    assert b"200" in answer(agent, AGENT)
            finally:
                stop.set()
                attacker.join()
            assert b"200" in answer(agent, AGENT)

    def test_of_a_job_owner_with_a_token_is_one_as_well(self, served: Any) -> None:
        with running(served.app, self.FLOOD) as made:
            agents = [made.connect() for _ in range(12)]
            for agent in agents:
                answer(agent, AGENT)
            for _ in range(60):
                with contextlib.suppress(OSError):
                    answer(made.connect(), USER)
            assert made.connections.seen().known == 12
            for agent in agents:
                assert b"200" in answer(agent, AGENT)

    def test_of_known_ones_alone_has_a_new_one_refused_at_once(self, served: Any) -> None:
        with running(served.app, Bounds(12)) as made:
            agents = [made.connect() for _ in range(12)]
            for agent in agents:
                answer(agent, AGENT)
            assert lasted_s(made.connect()) < 2.0
            assert made.ended == {Ended.FULL: 1}
            agents[0].close()
            until(lambda: made.connections.seen().open == 11)
            assert b"200" in answer(made.connect(), AGENT)

    def test_with_another_token_of_the_same_node_takes_none_of_its_places(self, served: Any) -> None:
        """A stolen token, while the node has a new one."""
        served.store.add_token("agent", "n1", hash_token("token-n1-stolen"), served.clock.now())
        with running(served.app, Bounds(40, most_per_agent=2)) as made:
            agent = made.connect()
            assert b"200" in answer(agent, AGENT)
            for _ in range(5):
                assert b"200" in answer(made.connect(), AGENT.replace(b"token-n1", b"token-n1-stolen"))
            until(lambda: made.ended == {Ended.OWN_ROOM: 3})
            assert b"200" in answer(agent, AGENT)

    def test_from_one_address_leaves_the_others_alone(self, served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Bounds, "many_behind", lambda _bounds, _address: False)
        with running(served.app, self.FLOOD) as made:
            others = [made.connect("127.0.0.3") for _ in range(5)]
            own_agent = made.connect("127.0.0.2")
            answer(own_agent, AGENT)
            for _ in range(100):
                with contextlib.suppress(OSError):  # it may be refused before the kernel has said that it was taken
                    made.connect("127.0.0.2")
            until(lambda: sum(made.ended.values()) == 91)
            assert made.connections.seen().open == 15
            for one in (*others, own_agent):
                assert b"200" in answer(one, AGENT)
            until(lambda: comes_in(made, "127.0.0.2"))

    def test_of_handshakes_that_never_end(self, served: Any, certificate: Path) -> None:
        with running(served.app, self.FLOOD, tls=certificate) as made:
            for _ in range(100):
                with contextlib.suppress(OSError):
                    made.connect().send(b"\x16\x03\x01")
            until(lambda: comes_in(made))
            assert made.connections.seen().open <= 40


class TestWithoutDescriptors:
    """Should the bounds not be enough."""

    def test_nothing_is_logged_by_the_thousand_and_the_next_one_is_served(
        self, served: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        with running(served.app, Bounds(10_000)) as made:
            answer(made.connect(), AGENT)
            waiting = [made.open.enter_context(socket.socket()) for _ in range(50)]
            with descriptors_left(5):
                for one in waiting:
                    one.connect(("127.0.0.1", made.port))
                time.sleep(2.5)
            lines = [r for r in caplog.records if r.name in ("asyncio", "holdfast.descriptors")]
            assert [r.getMessage().partition(" ")[0] for r in lines] == ["event=connections_not_accepted"]
            assert made.ended[Ended.MADE_ROOM] > 0
            assert b"200" in answer(made.connect(), AGENT)


class TestAgentsComeBack:
    def test_an_agent_whose_connection_was_closed_asks_again_at_once(self, served: Any, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("token-n1")
        with running(served.app, Bounds(20, idle_s=0.5)) as made:
            agent = ControllerClient(Controllers((f"http://127.0.0.1:{made.port}",)), tmp_path / "token", None)
            beat = {"version": 1, "node": "n1", "instance_id": "i-1", "boot_id": "b"}
            query = {"node": "n1", "instance_id": "i-1", "boot_id": "b", "wait_s": "0"}
            for _ in range(3):
                assert agent.post("/v1/heartbeats", beat).status == 200
                until(lambda: made.connections.seen().open == 0)
                assert agent.get("/v1/orders", query, 5.0).status == 200
                until(lambda: made.connections.seen().open == 0)
            assert made.ended[Ended.IDLE] == 6
            agent.close()


def test_requests_that_are_no_http_are_a_line_a_minute(http: str, caplog: pytest.LogCaptureFixture) -> None:
    own = logging.getLogger("uvicorn.error")
    for each in [f for f in own.filters if isinstance(f, listening.SeldomWarnings)]:
        own.removeFilter(each)
    with running(small_app()) as made:
        for _ in range(30):
            assert lasted_s(made.connect(), trickle=b"\0\0\0\0") < 3
            answer(
                made.connect(), b"GET /quick HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
            )
    lines = [r.getMessage() for r in caplog.records if r.name == "uvicorn.error" and r.levelno >= logging.WARNING]
    assert lines
    assert len(lines) == len(set(lines)) <= 3


def test_the_same_warning_comes_again_after_a_minute() -> None:
    now_s = 0.0
    seldom = listening.SeldomWarnings(lambda: now_s)
    warning = logging.makeLogRecord({"msg": "Invalid HTTP request received.", "levelno": logging.WARNING})
    error = logging.makeLogRecord({"msg": "Exception in ASGI application", "levelno": logging.ERROR})
    assert [seldom.filter(warning), seldom.filter(warning), seldom.filter(error), seldom.filter(error)] == [
        True,
        False,
        True,
        True,
    ]
    now_s = 60.0
    assert seldom.filter(warning)
