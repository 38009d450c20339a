"""Answers that no controller gives: compressed, endless, byte by byte. Each leads to one clear line, in bounded time and memory."""

from __future__ import annotations

import gzip
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.agent.sending.answers import MOST_BYTES
from holdfast.agent.sending.client import ControllerClient, Controllers, NoAnswer

Write = Callable[[bytes], None]


class Teller:
    """A server that answers each request with whatever ``told`` writes."""

    def __init__(self, told: Callable[[Write], None]) -> None:
        self.told = told
        self.heads: list[bytes] = []
        self.connections = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                link, _ = self._server.accept()
                self.connections += 1
                threading.Thread(target=self._answer, args=(link,), daemon=True).start()

    def _answer(self, link: socket.socket) -> None:
        with suppress(OSError), link:
            while head := link.recv(65536):
                self.heads.append(head)
                self.told(link.sendall)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)  # wakes the thread, whose accept keeps a descriptor
        self._server.close()


@pytest.fixture
def answering() -> Iterator[Callable[[Callable[[Write], None]], Teller]]:
    made: list[Teller] = []

    def make(told: Callable[[Write], None]) -> Teller:
        made.append(Teller(told))
        return made[-1]

    yield make
    for each in made:
        each.close()


Answering = Callable[[Callable[[Write], None]], Teller]


def head(length: int, *more: str) -> bytes:
    return "\r\n".join(["HTTP/1.1 200 OK", f"Content-Length: {length}", *more, "", ""]).encode()


def ask(teller: Teller, read_timeout_s: float = 5.0) -> str:
    """The reported reason why there is no answer."""
    client = ControllerClient(Controllers((teller.url,)), None, None)
    with pytest.raises(NoAnswer) as caught:
        client.get("/v1/orders", {}, read_timeout_s)
    client.close()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.slow
def test_what_is_packed_is_not_unpacked(answering: Answering) -> None:
    body = gzip.compress(b'{"orders":["' + b" " * (64 << 20) + b'"]}')
    teller = answering(lambda write: write(head(len(body), "Content-Encoding: gzip") + body))
    tracemalloc.start()
    try:
        assert "the answer is packed ('gzip'), which was not asked for" in ask(teller)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert b"\r\naccept-encoding: identity\r\n" in teller.heads[0].lower()


def chunks_without_end(write: Write) -> None:
    write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        write(b"10000\r\n" + b" " * 65536 + b"\r\n")


def a_long_one(write: Write) -> None:
    write(head(1 << 40))
    while True:
        write(b" " * 65536)


@pytest.mark.parametrize("told", [chunks_without_end, a_long_one])
def test_an_answer_without_end_is_left(answering: Answering, told: Callable[[Write], None]) -> None:
    assert f"the answer is longer than {MOST_BYTES} bytes" in ask(answering(told))


def slow_head(write: Write) -> None:
    write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while True:
        write(b"x")
        time.sleep(0.05)


def slow_body(write: Write) -> None:
    write(head(1 << 20))
    while True:
        write(b" ")
        time.sleep(0.05)


@pytest.mark.parametrize("told", [slow_head, slow_body])
def test_an_answer_that_drips_has_the_time_of_one_that_does_not_come(
    answering: Answering, told: Callable[[Write], None]
) -> None:
    began_s = time.monotonic()
    assert "timed out" in ask(answering(told), read_timeout_s=0.5).lower()
    assert 0.4 < time.monotonic() - began_s < 15.0


def test_a_retry_after_that_is_no_number_is_none(answering: Answering) -> None:
    teller = answering(lambda write: write(head(2).replace(b"\r\n\r\n", b"\r\nRetry-After: \xb2\r\n\r\n") + b"{}"))
    client = ControllerClient(Controllers((teller.url,)), None, None)
    assert client.post("/v1/reports", {}).retry_after_s == 0.0
    client.close()


def test_the_connection_is_kept_as_before(answering: Answering, tmp_path: Path) -> None:
    teller = answering(lambda write: write(head(14) + b'{"orders": []}'))
    client = ControllerClient(Controllers((teller.url,)), None, None)
    for _ in range(3):
        assert client.get("/v1/orders", {}, 5.0).body == {"orders": []}
        time.sleep(0.05)
    client.close()
    assert teller.connections == 1
