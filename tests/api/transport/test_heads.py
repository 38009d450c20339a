"""How much of a request the server keeps before it knows who sends it: a head of 64 KiB and 100 headers, by either parser, with and without
TLS."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.api.transport import protocols
from holdfast.api.transport.connections import Bounds
from holdfast.api.transport.protocols import MAX_HEAD_BYTES, MAX_HEADERS, MAX_WAITING_REQUESTS
from support.serving import GET, Running, answer, running, small_app, spoken, until
from tls import authorities

pytestmark = pytest.mark.slow

PATIENT = Bounds(200, 200, head_s=60.0, body_s=60.0)
"""So that no clock ends what is to end by its size."""
LINE = b"GET /quick HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"POST /reads HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS_BYTES = 64 << 20
KERNEL_BYTES = 16 << 20
"""More than the socket buffers of both sides hold."""


@pytest.fixture(params=["httptools", "h11"])
def http(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    return spoken(request.param, monkeypatch)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return authorities.former(tmp_path_factory.mktemp("tls") / "site")


@pytest.fixture(params=["plain", "tls"])
def made(request: pytest.FixtureRequest, http: str, certificate: Path) -> Iterator[Running]:
    with running(small_app(), PATIENT, tls=certificate if request.param == "tls" else None) as running_server:
        yield running_server


def headers(count: int) -> bytes:
    return b"".join(b"X-%d: y\r\n" % number for number in range(count))


def refused(found: bytes) -> bool:
    head, _, body = found.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 "), head
    assert b"connection: close" in head.lower()
    return bool(json.loads(body)["error"]["code"] == "head_too_large")


def taken_bytes(made: Running, begin: bytes, more: bytes) -> int:
    """How much of ``more``, sent repeatedly, is accepted before the connection is closed."""
    to, sent = made.client(), 0
    to.sendall(begin)
    try:
        while sent < ENDLESS_BYTES:
            to.sendall(more)
            sent += len(more)
    except (OSError, ssl.SSLError):
        return sent
    return sent


class TestAHeadWithinTheBounds:
    def test_is_answered(self, made: Running) -> None:
        for more in (headers(MAX_HEADERS - 1), b"X: " + b"y" * (MAX_HEAD_BYTES - 100) + b"\r\n"):
            assert b" 200 " in answer(made.client(), LINE + more + b"\r\n")

    def test_is_answered_as_each_of_a_hundred_on_one_connection(self, made: Running) -> None:
        one = made.client()
        for _ in range(100):
            assert b" 200 " in answer(one, LINE + headers(50) + b"\r\n")

    def test_may_come_in_small_pieces(self, made: Running) -> None:
        one = made.client()
        for byte in LINE:
            one.sendall(bytes([byte]))
        assert b" 200 " in answer(one, b"\r\n")

    def test_has_a_body_of_any_size_after_it(self, made: Running) -> None:
        one, size = made.client(), 3 << 20
        for _ in range(2):
            found = answer(one, b"POST /reads HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)
            assert str(size).encode() in found
        assert b" 200 " in answer(one, GET)

    def test_and_trailers_that_are_left_out(self, made: Running) -> None:
        one = made.client()
        assert b" 200 " in answer(one, CHUNKED + b"1\r\nx\r\n0\r\nX-Last: y\r\n\r\n")
        assert b" 200 " in answer(one, GET)


class TestALargerHead:
    def test_of_too_many_headers_is_431(self, made: Running) -> None:
        assert refused(answer(made.client(), LINE + headers(MAX_HEADERS) + b"\r\n"))

    @pytest.mark.parametrize("count", [1, 8])
    def test_of_too_many_bytes_is_431(self, made: Running, count: int) -> None:
        each = b"X: " + b"y" * (MAX_HEAD_BYTES // count) + b"\r\n"
        assert refused(answer(made.client(), LINE + each * count + b"\r\n"))

    def test_of_too_long_a_target_is_refused(self, made: Running) -> None:
        """httptools itself takes no such URL."""
        found = answer(made.client(), b"GET /" + b"y" * MAX_HEAD_BYTES + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert found.startswith(b"HTTP/1.1 400 ") or refused(found)

    def test_ends_its_connection_and_no_other(self, made: Running) -> None:
        other, one = made.client(), made.client()
        answer(other, GET)
        answer(one, LINE + headers(MAX_HEADERS) + b"\r\n")
        assert one.recv(1) == b""
        one.close()
        assert b" 200 " in answer(other, GET)
        until(lambda: made.connections.seen().open == 1)


class TestWhatNeverEnds:
    """Of each far less is taken than is sent, and the connection is gone before its clock."""

    @pytest.mark.parametrize(
        ("begin", "more"),
        [
            pytest.param(LINE + b"X: ", b"y" * 65_536, id="one header"),
            pytest.param(LINE, b"X: y\r\n" * 10_000, id="headers"),
            pytest.param(LINE, b"y" * 65_536, id="a header's name"),
            pytest.param(b"GET /", b"y" * 65_536, id="target"),
            pytest.param(CHUNKED + b"1\r\nx\r\n0\r\n", b"X: y\r\n" * 10_000, id="trailers"),
            pytest.param(CHUNKED + b"1\r\nx\r\n0\r\nX: ", b"y" * 65_536, id="one trailer"),
        ],
    )
    def test_is_not_kept(self, made: Running, begin: bytes, more: bytes) -> None:
        began_s = time.monotonic()
        assert taken_bytes(made, begin, more) < KERNEL_BYTES
        until(lambda: made.connections.seen().open == 0)
        assert time.monotonic() - began_s < 20

    def test_a_row_of_large_heads_is_cut(self, made: Running, http: str) -> None:
        """Fifty were kept, 3.3 MiB of each of a stranger's connections. h11 keeps what it has not read yet as bytes, and reads no more."""
        one = made.client()
        each = LINE.replace(b"/quick", b"/slow") + b"X: " + b"y" * (MAX_HEAD_BYTES - 100) + b"\r\n\r\n"
        if http == "httptools":
            assert taken_bytes(made, each, each) < KERNEL_BYTES
            until(lambda: made.connections.seen().open == 1)  # ``one``
        else:
            one.settimeout(1)
            with pytest.raises(TimeoutError):
                one.sendall(each * 200)

    def test_what_waits_has_its_turn_before_more_is_read(self, http: str, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[tuple[int, bool]] = []
        if http == "h11":
            pytest.skip("keeps no requests that wait")
        own = protocols.GuardedHttpTools.on_response_complete

        def note(self: protocols.GuardedHttpTools) -> None:
            own(self)
            seen.append((len(self.pipeline), self.flow.read_paused))

        monkeypatch.setattr(protocols.GuardedHttpTools, "on_response_complete", note)
        with running(small_app(), PATIENT) as made:
            one = made.client()
            one.sendall(GET * (1 + MAX_WAITING_REQUESTS))
            until(lambda: len(seen) == 1 + MAX_WAITING_REQUESTS)
            assert b" 200 " in one.recv(65_536)
        assert seen == [(1, True), (0, False), (0, False)]

    def test_a_row_of_requests_is_cut(self, made: Running, http: str) -> None:
        """Sent at once, while the first one waits for its answer. h11 keeps them as bytes, and reads one after the other."""
        one = made.client()
        one.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n" + GET * (MAX_WAITING_REQUESTS * 4))
        one.settimeout(10)
        found = one.recv(65_536)
        assert (b" 400 " if http == "httptools" else b" 200 ") in found.partition(b"\r\n")[0]
