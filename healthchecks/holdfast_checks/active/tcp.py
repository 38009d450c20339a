"""Bandwidth of TCP within this machine, by plain sockets. It measures the processor and the kernel, not a network."""

from __future__ import annotations

import random
import socket
import threading
import time

from holdfast_checks.active.report import NODE, ActiveReport, Corruption, Figure, PlaceTrouble

_CHUNK_BYTES = 1 << 20
_TIMEOUT_S = 10.0


def loopback(seconds: float) -> ActiveReport:
    """One stream over 127.0.0.1 for ``seconds``; every chunk that arrives is compared."""
    chunk = random.Random(7).randbytes(_CHUNK_BYTES)  # noqa: S311 - a pattern
    sent = _Sender(chunk, seconds)
    sent.start()
    try:
        received, wrong, elapsed_s = _receive(sent.port, chunk)
    except OSError as error:
        return ActiveReport("tcp", "tcp", troubles=(PlaceTrouble(NODE, f"TCP over 127.0.0.1: {error}"),))
    finally:
        sent.join(_TIMEOUT_S)
    figure = Figure(NODE, "loopback", received / max(elapsed_s, 1e-9) / 1e9, "GB/s")
    bad = (Corruption(NODE, "tcp", f"{wrong} chunks of 1 MiB changed in transfer"),) if wrong else ()
    return ActiveReport("tcp", "tcp", (NODE,), (figure,), bad)


class _Sender(threading.Thread):
    def __init__(self, chunk: bytes, seconds: float) -> None:
        super().__init__(name="tcp-sender", daemon=True)
        self._chunk, self._seconds = chunk, seconds
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(_TIMEOUT_S)
        self.port = int(self._server.getsockname()[1])

    def run(self) -> None:
        with self._server:
            try:
                with self._server.accept()[0] as peer:
                    until_s = time.monotonic() + self._seconds
                    peer.settimeout(_TIMEOUT_S)
                    peer.sendall(self._chunk)
                    while time.monotonic() < until_s:
                        peer.sendall(self._chunk)
            except OSError:
                return  # the receiver sees it as the end


def _receive(port: int, chunk: bytes) -> tuple[int, int, float]:
    """(bytes, wrong chunks, seconds)."""
    buffer = bytearray(len(chunk))
    view = memoryview(buffer)
    received = wrong = 0
    with socket.create_connection(("127.0.0.1", port), _TIMEOUT_S) as stream:
        stream.settimeout(_TIMEOUT_S)
        began_s = time.monotonic()
        while receive_exactly(stream, view):
            received += len(view)
            wrong += int(buffer != chunk)
        return received, wrong, time.monotonic() - began_s


def receive_exactly(stream: socket.socket, view: memoryview) -> bool:
    """Fill the view; False: the stream ended before."""
    filled = 0
    while filled < len(view):
        count = stream.recv_into(view[filled:])
        if count == 0:
            return False
        filled += count
    return True
