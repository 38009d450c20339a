"""The all-reduce between two nodes: two processes on this one."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast_checks.active.backend import BackendUnusable
from holdfast_checks.active.pair_probe import CONNECT, LISTEN, PairResult, ProbeFailed, pair_probe

HERE = "127.0.0.1"


def free_port() -> int:
    with socket.create_server((HERE, 0)) as server:
        return int(server.getsockname()[1])


def both(listener: dict[str, Any], connector: dict[str, Any]) -> list[PairResult | Exception]:
    """The results of the two sides, each in a thread."""
    port = free_port()

    def side(role: str, options: dict[str, Any]) -> PairResult | Exception:
        try:
            return pair_probe(role, HERE, port, **{"secret": "s", "deadline_s": 10.0, **options})
        except (ProbeFailed, BackendUnusable) as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(side, (LISTEN, CONNECT), (listener, connector)))


@pytest.mark.parametrize("size_bytes", [2, 3, 1000, 100_000])
def test_both_sides_compute_the_same_right_sum(size_bytes: int) -> None:
    for result in both({"size_bytes": size_bytes, "rounds": 2}, {"size_bytes": size_bytes, "rounds": 2}):
        assert isinstance(result, PairResult), result
        assert (result.rounds, result.wrong, result.transport) == (2, 0, "tcp")
        assert result.bus_gigabytes_s > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("listener", "connector", "words"),
    [
        ({"secret": "a"}, {"secret": "b"}, "not the other side"),
        ({"rounds": 1}, {"rounds": 2}, "another probe"),
        ({"size_bytes": 100}, {"size_bytes": 200}, "another probe"),
    ],
)
def test_a_stranger_or_another_probe_is_refused(
    listener: dict[str, Any], connector: dict[str, Any], words: str
) -> None:
    assert any(isinstance(result, ProbeFailed) and words in str(result) for result in both(listener, connector))


@pytest.mark.slow
@pytest.mark.parametrize("role", [LISTEN, CONNECT])
def test_nobody_there_is_told_within_the_deadline(role: str) -> None:
    with pytest.raises(ProbeFailed, match=r"timed out|refused"):
        pair_probe(role, HERE, free_port(), secret="s", deadline_s=0.3)


def _reach(port: int) -> socket.socket:
    while True:  # the listener may not listen yet; the test's time limit ends this
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection((HERE, port), 5)
        time.sleep(0.01)


def relay(port: int, target: int, change: Callable[[bytes], bytes]) -> threading.Thread:
    """A network between the two that may change what it carries."""
    server = socket.create_server((HERE, port))

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(change(data))
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with server, server.accept()[0] as one, _reach(target) as other:
            threads = [threading.Thread(target=pump, args=ends) for ends in ((one, other), (other, one))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_a_network_that_changes_a_byte_gives_a_wrong_sum_and_no_error() -> None:
    port, middle = free_port(), free_port()
    seen = [0]

    def change(data: bytes) -> bytes:
        seen[0] += len(data)
        if seen[0] < 400_000 or seen[0] - len(data) >= 400_000:
            return data
        return bytes([data[0] ^ 4]) + data[1:]

    with ThreadPoolExecutor(2) as pool:
        listening = pool.submit(
            pair_probe, LISTEN, HERE, port, secret="s", size_bytes=200_000, rounds=3, deadline_s=10.0
        )
        thread = relay(middle, port, change)
        connecting = pool.submit(
            pair_probe, CONNECT, HERE, middle, secret="s", size_bytes=200_000, rounds=3, deadline_s=10.0
        )
        results = [listening.result(), connecting.result()]
    thread.join()
    assert sum(result.wrong for result in results) >= 1


def test_what_makes_no_sense_is_refused_before_anything_is_opened() -> None:
    for options in ({"transport": "carrier pigeon"}, {"rounds": 0}, {"size_bytes": 1}):
        with pytest.raises(ValueError, match=r"transport|round"):
            pair_probe(LISTEN, HERE, 1, secret="s", **options)
    with pytest.raises(ValueError, match="role"):
        pair_probe("umpire", HERE, 1, secret="s")


@pytest.mark.slow
def test_two_processes_of_this_machine() -> None:
    port = free_port()
    code = (
        "import sys; from holdfast_checks.active.pair_probe import pair_probe\n"
        f"r = pair_probe(sys.argv[1], '{HERE}', {port}, secret='x', size_bytes=1 << 20, rounds=4, deadline_s=20)\n"
        "print(r.wrong, r.rounds)"
    )
    sides = [
        subprocess.Popen([sys.executable, "-c", code, role], stdout=subprocess.PIPE, text=True)
        for role in (LISTEN, CONNECT)
    ]
    assert [side.communicate(timeout=30)[0] for side in sides] == ["0 4\n", "0 4\n"]


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["gloo", "nccl"])
def test_without_pytorch_its_transports_are_unusable(transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(BackendUnusable, match="PyTorch"):
        pair_probe(LISTEN, HERE, 1, secret="s", transport=transport)
