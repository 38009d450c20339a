"""Sum gradients over all ranks through rank 0: a collective that behaves like NCCL's.

Rank 0 listens on a free port and leaves address and a token in the job's folder. If a peer dies, its connection closes and
:class:`PeerLost` is raised here; if its node lost power, nothing arrives and the step hangs.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import struct
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast_checks.whole_file import write_whole

_HEAD = struct.Struct("<BI")
_HELLO = struct.Struct("<64sI")
_TOKEN_BYTES = 32


class PeerLost(Exception):
    """A connection to a peer ended in the middle of the training."""


class Exchange:
    """The connections of one rank."""

    def __init__(self, rank: int, peers: Sequence[socket.socket]) -> None:
        self._rank = rank
        self._peers = tuple(peers)

    def sum(self, numbers: list[float], wish: bool) -> tuple[list[float], bool]:
        """Returns (sum over all ranks, in rank order; whether any rank had the wish), the same on every rank.

        Raises PeerLost. Waits forever for a silent peer, as a collective does."""
        try:
            if self._rank:
                _send(self._peers[0], numbers, wish)
                return _receive(self._peers[0])
            total = list(numbers)
            for peer in self._peers:
                theirs, their_wish = _receive(peer)
                total = [a + b for a, b in zip(total, theirs, strict=True)]
                wish = wish or their_wish
            for peer in self._peers:
                _send(peer, total, wish)
        except OSError as error:
            raise PeerLost(str(error)) from error
        return total, wish

    def close(self) -> None:
        for peer in self._peers:
            peer.close()


def connect(folder: Path, name: str, rank: int, world_size: int, *, address: str, timeout_s: float) -> Exchange:
    """Connect to all ranks of the run ``name``. Raises PeerLost when they do not connect in time."""
    try:
        if rank == 0:
            return Exchange(0, _host(folder / f".rendezvous-{name}", world_size, address, timeout_s))
        return Exchange(rank, [_join(folder / f".rendezvous-{name}", rank, timeout_s)])
    except OSError as error:
        raise PeerLost(f"no rendezvous in {timeout_s:g} s: {error}") from error


def _host(path: Path, world_size: int, address: str, timeout_s: float) -> list[socket.socket]:
    token = secrets.token_hex(_TOKEN_BYTES)
    peers: dict[int, socket.socket] = {}
    ends_at = time.monotonic() + timeout_s
    with socket.create_server((address, 0), backlog=world_size) as server:
        write_whole(path, json.dumps([address, server.getsockname()[1], token]), 0o600)
        while len(peers) < world_size - 1:
            server.settimeout(max(0.001, ends_at - time.monotonic()))
            peer, _ = server.accept()
            peer.settimeout(5.0)
            rank = _greeted(peer, token)
            if rank is None or not 0 < rank < world_size or rank in peers:
                peer.close()
                continue
            _ready(peer)
            peers[rank] = peer
    path.unlink()
    return [peers[rank] for rank in sorted(peers)]


def _greeted(peer: socket.socket, token: str) -> int | None:
    try:
        theirs, rank = _HELLO.unpack(_exactly(peer, _HELLO.size))
    except OSError:
        return None
    return int(rank) if hmac.compare_digest(theirs, token.encode()) else None


def _join(path: Path, rank: int, timeout_s: float) -> socket.socket:
    ends_at = time.monotonic() + timeout_s
    while True:
        try:
            address, port, token = json.loads(path.read_text())
            peer = socket.create_connection((address, port), timeout=5.0)
            break
        except (FileNotFoundError, ConnectionError) as error:
            if time.monotonic() > ends_at:
                raise TimeoutError(str(error)) from error
            time.sleep(0.05)
    peer.sendall(_HELLO.pack(token.encode(), rank))
    _ready(peer)
    return peer


def _ready(peer: socket.socket) -> None:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.settimeout(None)


def _send(peer: socket.socket, numbers: list[float], wish: bool) -> None:
    peer.sendall(_HEAD.pack(wish, len(numbers)) + struct.pack(f"<{len(numbers)}d", *numbers))


def _receive(peer: socket.socket) -> tuple[list[float], bool]:
    wish, count = _HEAD.unpack(_exactly(peer, _HEAD.size))
    return list(struct.unpack(f"<{count}d", _exactly(peer, 8 * count))), bool(wish)


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = peer.recv(size - len(data))
        if not part:
            raise ConnectionResetError("the peer closed the connection")
        data += part
    return data


def default_address() -> str:
    """Where rank 0 listens: ``HOLDFAST_TRAIN_ADDRESS``, else the loopback that all practice nodes share."""
    return os.environ.get("HOLDFAST_TRAIN_ADDRESS", "127.0.0.1")
