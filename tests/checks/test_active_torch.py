"""The same tests through PyTorch, on the processor. PyTorch is not among this project's packages: without it they are skipped
(docs/verified.md says where they ran)."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from typing import Any

import pytest

from holdfast_checks.active import compute
from holdfast_checks.active.backend import BackendUnusable
from holdfast_checks.active.pair_probe import ROLES
from holdfast_checks.active.torch_backend import TorchBackend

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy"),
    pytest.mark.skipif(
        find_spec("torch") is None, reason="needs PyTorch"
    ),  # not imported: that costs every collection a second
]


def test_good_memory_arithmetic_and_copies() -> None:
    backend = TorchBackend("cpu")
    reports = [
        compute.memory(backend, 0.0, 0.9),
        compute.burn(backend, 0.1),
        compute.copy(backend, 0.2),
        compute.pair(backend, 0.2),
    ]
    for report in reports:
        assert report.places == ("cpu-0", "cpu-1")
        assert not report.corruptions + report.troubles
    place = backend.places()[0]
    assert backend.burn(place, 0.0).checksum == backend.expected_checksum()


class Flips(TorchBackend):
    """One value in a block of memory changes, and one byte of what the second place copies."""

    spoilt = 0

    def _write(self, block: Any, pattern: int, address: int) -> None:
        super()._write(block, pattern, address)
        if pattern == 2 and address:
            block[17] ^= 1 << 40

    def _timed(self, place: Any, target: Any, source: Any, seconds: float) -> float:
        rate = super()._timed(place, target, source, seconds)
        if place.index == 1 and source.data_ptr() != self.spoilt:
            target[99] ^= 1
            self.spoilt = target.data_ptr()
        return rate


def test_flipped_bits_are_found() -> None:
    backend = Flips("cpu")
    assert [one.code for one in compute.memory(backend, 0.0, 0.9).corruptions] == ["memory", "memory"]
    assert [one.component for one in compute.copy(backend, 0.1).corruptions] == ["cpu-1"]
    assert [one.component for one in compute.pair(backend, 0.1).corruptions] == ["cpu-1"]


def test_a_product_whose_first_rows_are_not_the_exact_ones_is_wrong() -> None:
    backend = TorchBackend("cpu")
    exact = backend._exact_rows()
    exact[3, 5] += 1
    backend._exact_rows = lambda: exact  # type: ignore[method-assign]
    assert backend.burn(backend.places()[0], 0.0).wrong == 1


@pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="a GPU is here")
def test_without_a_gpu_cuda_is_unusable() -> None:
    with pytest.raises(BackendUnusable, match="no GPU"):
        TorchBackend("cuda")


def test_an_all_reduce_of_two_processes_through_gloo_although_a_stranger_came_first() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    code = (
        "import sys; from holdfast_checks.active.pair_probe import pair_probe\n"
        f"r = pair_probe(sys.argv[1], '127.0.0.1', {port}, secret='s', transport='gloo', size_bytes=1 << 16)\n"
        "print(r.wrong, r.rounds)"
    )
    env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}

    def side(role: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-W", "ignore", "-c", code, role]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env)

    first = side(ROLES[0])
    with _reach(port) as stranger:
        stranger.sendall(b"\x00" * 1000)  # as PyTorch's own store would be spoken to: not our protocol
        sides = [first, side(ROLES[1])]
        assert [each.communicate(timeout=90)[0] for each in sides] == ["0 8\n", "0 8\n"]


def _reach(port: int) -> socket.socket:
    while True:  # the listener does not listen yet; the test's time limit ends this
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection(("127.0.0.1", port), 5)
        time.sleep(0.05)
