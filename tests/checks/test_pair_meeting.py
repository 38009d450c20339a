"""Strangers at the port of a pair probe: they get nothing, delay no one, and make no probe fail."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast_checks.active import pair_meeting
from holdfast_checks.active.pair import PairSide, run_side
from holdfast_checks.active.pair_meeting import _HELLO
from holdfast_checks.active.pair_probe import CONNECT, LISTEN, NoPartner, PairResult, ProbeFailed, pair_probe
from holdfast_checks.active.pair_store import PairStore
from holdfast_checks.settings import ActiveSettings

HERE = "127.0.0.1"
SECRET = "5b1e" * 16
WORK: dict[str, Any] = {"secret": SECRET, "size_bytes": 1000, "rounds": 2}
_OLD_HELLO = struct.Struct("!16s32sQI")


def free_port() -> int:
    with socket.create_server((HERE, 0)) as server:
        return int(server.getsockname()[1])


def reach(port: int) -> socket.socket:
    while True:  # the listener may not listen yet; the test's time limit ends this
        with contextlib.suppress(ConnectionRefusedError):
            stream = socket.create_connection((HERE, port), 5)
            stream.settimeout(10)
            return stream
        time.sleep(0.01)


def all_of(stream: socket.socket) -> bytes:
    said = b""
    with contextlib.suppress(OSError):
        while chunk := stream.recv(65536):
            said += chunk
    return said


@contextmanager
def listening(deadline_s: float = 10.0) -> Iterator[tuple[int, Future[PairResult]]]:
    port = free_port()
    with ThreadPoolExecutor(1) as pool:
        yield port, pool.submit(pair_probe, LISTEN, HERE, port, deadline_s=deadline_s, **WORK)


def old_proof(role: str) -> bytes:
    """As agents from before the challenge sent it, from anything that may be known."""
    return hmac.new(b"0h3k/5", role.encode(), hashlib.sha256).digest()


def says_nothing(_stream: socket.socket) -> None:
    """A connection that sends nothing."""


def says_garbage(stream: socket.socket) -> None:
    stream.sendall(os.urandom(4096))


def speaks_the_old_way(stream: socket.socket) -> None:
    stream.sendall(_OLD_HELLO.pack(b"holdfast-probe-1", old_proof(CONNECT), 1000, 2))


def proves_another_secret(stream: socket.socket) -> None:
    theirs = stream.recv(_HELLO.size, socket.MSG_WAITALL)
    mine = theirs[:16] + os.urandom(32) + theirs[48:]
    stream.sendall(mine + hmac.new(b"0h3k/5", b"connect" + theirs + mine, hashlib.sha256).digest())


def gives_back_what_it_got(stream: socket.socket) -> None:
    theirs = stream.recv(_HELLO.size, socket.MSG_WAITALL)
    stream.sendall(theirs + bytes(32))


STRANGERS = [says_nothing, says_garbage, speaks_the_old_way, proves_another_secret, gives_back_what_it_got]


@pytest.mark.parametrize("stranger", STRANGERS)
def test_a_stranger_who_comes_first_gets_nothing_and_the_probe_is_done(
    stranger: Callable[[socket.socket], None],
) -> None:
    with listening() as (port, listener):
        with reach(port) as stream:
            stranger(stream)
            assert pair_probe(CONNECT, HERE, port, deadline_s=10.0, **WORK).wrong == 0
            assert listener.result().wrong == 0
            said = all_of(stream)
        assert len(said) <= _HELLO.size, "its own random number, and what is asked of both"
        assert SECRET.encode() not in said


@pytest.mark.slow
def test_hundreds_of_silent_strangers_keep_nobody_out() -> None:
    with listening() as (port, listener), ExitStack() as strangers:
        for _ in range(300):
            strangers.enter_context(reach(port))
        assert pair_probe(CONNECT, HERE, port, deadline_s=10.0, **WORK).wrong == 0
        assert listener.result().wrong == 0


def test_who_never_says_anything_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_meeting, "_GREETING_S", 0.2)
    with listening() as (port, listener):
        with reach(port) as stream:
            assert len(all_of(stream)) == _HELLO.size  # the other side hangs up
        pair_probe(CONNECT, HERE, port, deadline_s=10.0, **WORK)
        listener.result()


@pytest.mark.slow
def test_without_the_other_side_the_deadline_ends_it_and_strangers_make_nothing_known_of_the_path() -> None:
    with listening(0.5) as (_port, listener), pytest.raises(ProbeFailed, match="no connection") as failed:
        listener.result()
    assert not isinstance(failed.value, NoPartner)
    for stranger in STRANGERS:
        with listening(0.5) as (port, listener), reach(port) as stream:
            stranger(stream)
            with pytest.raises(NoPartner, match="none was the other side"):
                listener.result()


@contextmanager
def answering(answer: Callable[[socket.socket], bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """A stranger that took the port before the listener could; what it received."""
    heard: list[bytes] = []
    with socket.create_server((HERE, 0)) as server:

        def serve() -> None:
            with server.accept()[0] as stream:
                stream.settimeout(5)
                with contextlib.suppress(OSError):
                    heard.append(answer(stream))

        thread = threading.Thread(target=serve)
        thread.start()
        yield int(server.getsockname()[1]), heard
        thread.join()


def with_a_false_proof(stream: socket.socket) -> bytes:
    stream.sendall(_HELLO.pack(b"holdfast-probe-2", os.urandom(32), 1000, 2, b"tcp"))
    heard = stream.recv(_HELLO.size + 32, socket.MSG_WAITALL)
    stream.sendall(heard[-32:])  # the connector's own proof: good for the connector alone
    return heard + all_of(stream)


def as_the_old_listener(stream: socket.socket) -> bytes:
    stream.sendall(_OLD_HELLO.pack(b"holdfast-probe-1", old_proof(LISTEN), 1000, 2))
    return all_of(stream)


@pytest.mark.parametrize("answer", [with_a_false_proof, as_the_old_listener])
def test_a_stranger_in_the_listeners_place_gets_no_data_and_convicts_nobody(
    answer: Callable[[socket.socket], bytes],
) -> None:
    with answering(answer) as (port, heard):
        began_s = time.monotonic()
        with pytest.raises(NoPartner):
            pair_probe(CONNECT, HERE, port, deadline_s=10.0, **WORK)
        assert time.monotonic() - began_s < 5
    assert len(heard[0]) <= _HELLO.size + 32
    assert SECRET.encode() not in heard[0]


@pytest.mark.slow
def test_a_connector_that_finds_no_place_tries_again() -> None:
    with answering(lambda _stream: b"") as (port, _heard), pytest.raises(NoPartner):
        pair_probe(CONNECT, HERE, port, deadline_s=0.5, **WORK)


@pytest.mark.slow
def test_the_secret_is_to_be_read_nowhere_on_the_node() -> None:
    side = PairSide(LISTEN, HERE, free_port(), SECRET, "tcp", 1000, 2, 2.0)
    assert SECRET not in repr(side)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(run_side, side, ActiveSettings())
        reach(side.port).close()
        shown = [file.read_bytes() for file in _what_users_may_read()]
        assert any(b"pair_side" in text for text in shown)
        assert not [text for text in shown if SECRET.encode() in text]
        assert answer.result().said == "unknown"
    assert SECRET not in repr(answer.result())


def _what_users_may_read() -> Iterator[Path]:
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                (process / name).read_bytes()
                yield process / name


class FakeDist:
    """As much of torch.distributed as a store needs."""

    class Store:
        def __init__(self) -> None:
            self.made = True


def test_what_pytorch_tells_itself_goes_over_the_proved_connection_alone() -> None:
    one, other = socket.socketpair()
    with one, other:
        first, second = (PairStore(stream, listens=stream is one, deadline_s=5.0) for stream in (one, other))
        here: Any = first.store(FakeDist)
        there: Any = second.store(FakeDist)
        assert here.made
        here.set("id", b"\x00\xff")
        there.set("text", "a")
        assert (there.get("id"), here.get("text")) == (b"\x00\xff", b"a")
        assert [here.add("n", 1), there.add("n", 2), there.add("n", 0)] == [1, 3, 3]
        assert (there.compare_set("id", b"x", b"y"), there.compare_set("id", b"\x00\xff", b"y")) == (b"\x00\xff", b"y")
        assert (there.check(["id", "n"]), there.check(["id", "no"]), there.num_keys()) == (True, False, 3)
        assert (there.delete_key("id"), there.deleteKey("id"), here.getNumKeys()) == (True, False, 2)
        with pytest.raises(RuntimeError, match="did not say no"):
            there.wait(["no"], timedelta(seconds=0.05))
        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(there.get, "late")
            time.sleep(0.05)
            assert there.num_keys() == 2, "one that waits keeps no other thread out"
            here.set("late", b"now")
            assert waits.result() == b"now"
        second.end()
        first.end()
        with pytest.raises(RuntimeError, match="gone"):
            there.get("id")
