"""Closed TLS connections leave nothing in memory that waits for the garbage collector, which rarely runs."""

from __future__ import annotations

import gc
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.api.transport import listening, tls_memory
from holdfast.api.transport.connections import Bounds
from support.serving import GET, Running, answer, running, small_app, until
from tls import authorities

pytestmark = pytest.mark.slow

MANY = 60


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return authorities.former(tmp_path_factory.mktemp("tls") / "site")


@pytest.fixture
def made(certificate: Path) -> Iterator[Running]:
    with running(small_app(), Bounds(1000, 1000), tls=certificate) as running_server:
        yield running_server


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def hello() -> bytes:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    going = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), going).do_handshake()
    return going.read()


def silent(made: Running) -> None:
    made.connect().close()


def reset(made: Running) -> None:
    one = made.connect()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    one.close()


def broken(made: Running) -> None:
    with made.connect() as one:
        one.sendall(b"\x16\x03\x01no handshake")
        one.recv(100)


def begun(made: Running) -> None:
    with made.connect() as one:
        one.sendall(hello())
        one.recv(10)


def served(made: Running) -> None:
    with made.client() as one:
        answer(one, GET)


def small_ones() -> list[tls_memory.SmallTls]:
    """By their type alone: ``isinstance`` asks each object for its class, and torch has one that warns when it is asked."""
    return [each for each in gc.get_objects() if type(each) is tls_memory.SmallTls]


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("kind", [silent, reset, broken, begun, served])
def test_nothing_that_is_large_is_left(made: Running, kind: Callable[[Running], None]) -> None:
    for _ in range(MANY):
        kind(made)
    until(lambda: made.connections.seen().open == 0)
    until(lambda: len(small_ones()) <= 2, within_s=5)


def test_a_connection_has_a_small_buffer(made: Running) -> None:
    one = made.client()
    answer(one, GET)
    (found,) = small_ones()
    assert len(vars(found)["_ssl_buffer"]) == tls_memory.BUFFER_BYTES
    assert sslproto.SSLProtocol is tls_memory.SmallTls


def test_what_refers_to_itself_is_collected_after_many(made: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "COLLECT_EVERY", MANY)
    collected: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(1))
    for _ in range(MANY):
        silent(made)
    until(lambda: bool(collected))
