"""Pair probe: an all-reduce between two nodes that measures the path's speed and checks the data.

One side listens, the other connects; both are given the same secret and prove it before anything else (:mod:`pair_meeting`). ``tcp`` needs
nothing: each side's vector is halved, each half reduced (by exclusive or) on one side and sent back, as a ring of two does it. ``gloo`` and
``nccl`` are PyTorch's, the latter over the fabric that NCCL finds (EFA through its plugin); what they exchange to connect goes over
the connection on which the secret was proved (:mod:`pair_store`)."""

from __future__ import annotations

import datetime
import importlib
import random
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any

from holdfast_checks.active.backend import BackendUnusable
from holdfast_checks.active.pair_meeting import CONNECT, LISTEN, NoPartner, ProbeFailed, Terms, meet
from holdfast_checks.active.pair_store import PairStore
from holdfast_checks.active.tcp import receive_exactly

__all__ = ["CONNECT", "LISTEN", "ROLES", "TRANSPORTS", "NoPartner", "PairResult", "ProbeFailed", "pair_probe"]
ROLES = (LISTEN, CONNECT)
TRANSPORTS = ("tcp", "gloo", "nccl")


@dataclass(frozen=True)
class PairResult:
    """What one side saw."""

    transport: str
    rounds: int
    wrong: int
    """Rounds whose sum was not what it had to be."""
    bus_gigabytes_s: float
    """Bus bandwidth as nccl-tests counts it: of two ranks it is size over time."""
    seconds: float


def pair_probe(
    role: str,
    address: str,
    port: int,
    *,
    secret: str,
    transport: str = "tcp",
    size_bytes: int = 16 * 1024 * 1024,
    rounds: int = 8,
    deadline_s: float = 60.0,
    gpu: int = 0,
) -> PairResult:
    """One side of the probe. ``address`` is the listener's, for both sides. Blocks for ``deadline_s`` at most.

    Raises ValueError for a role or transport that does not exist, BackendUnusable where PyTorch, a GPU or the port to listen on is missing,
    NoPartner where the other side is not there, ProbeFailed for the rest."""
    if role not in ROLES or transport not in TRANSPORTS:
        raise ValueError(f"role is one of {ROLES} and transport one of {TRANSPORTS}, not {role!r} and {transport!r}")
    if size_bytes < 2 or rounds < 1:
        raise ValueError("a probe has a round of two bytes at least")
    torch = None if transport == "tcp" else _torch(transport)  # it may take longer to load than the probe itself
    until_s = time.monotonic() + deadline_s
    terms = Terms(transport, size_bytes, rounds)
    try:
        with meet(role, address, port, secret, terms, until_s) as stream:
            if torch is None:
                return _tcp_rounds(stream, role, secret, size_bytes // 2 * 2, rounds, until_s)
            return _torch_probe(torch, stream, role, terms, until_s, gpu)
    except OSError as error:
        raise ProbeFailed(f"{address}:{port}: {error}") from error


def _tcp_rounds(
    stream: socket.socket, role: str, secret: str, size_bytes: int, rounds: int, until_s: float
) -> PairResult:
    mine, theirs = (_vector(secret, side, size_bytes) for side in (role, CONNECT if role == LISTEN else LISTEN))
    wanted = _reduced(mine, theirs)
    half = size_bytes // 2
    kept, given = (slice(0, half), slice(half, None)) if role == LISTEN else (slice(half, None), slice(0, half))
    stream.settimeout(max(0.1, until_s - time.monotonic()))
    _exchange(stream, b"\0", 1)  # both begin now
    wrong, began_s = 0, time.monotonic()
    for _ in range(rounds):
        stream.settimeout(max(0.1, until_s - time.monotonic()))
        own_half = _reduced(mine[kept], _exchange(stream, mine[given], half))
        other_half = _exchange(stream, own_half, half)
        result = own_half + other_half if role == LISTEN else other_half + own_half
        wrong += int(result != wanted)
    seconds = max(time.monotonic() - began_s, 1e-9)
    return PairResult("tcp", rounds, wrong, size_bytes * rounds / seconds / 1e9, seconds)


def _exchange(stream: socket.socket, outgoing: bytes, size: int) -> bytes:
    """Send and receive at once: with two blocking sends in a row both sides would wait for each other."""
    failed: list[OSError] = []

    def send() -> None:
        try:
            stream.sendall(outgoing)
        except OSError as error:
            failed.append(error)

    sender = threading.Thread(target=send, name="pair-sender", daemon=True)
    sender.start()
    view = memoryview(bytearray(size))
    whole = receive_exactly(stream, view)
    sender.join()
    if failed:
        raise failed[0]
    if not whole:
        raise ProbeFailed("the other side hung up")
    return bytes(view)


def _vector(secret: str, side: str, size_bytes: int) -> bytes:
    return random.Random(f"{secret}/{side}").randbytes(size_bytes)  # noqa: S311 - a pattern that both sides know


def _reduced(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "little") ^ int.from_bytes(other, "little")).to_bytes(len(one), "little")


def _torch(transport: str) -> Any:
    """PyTorch with its ``distributed``. Raises BackendUnusable."""
    try:
        torch: Any = importlib.import_module("torch")
        importlib.import_module("torch.distributed")
    except (ImportError, OSError) as error:
        raise BackendUnusable(f"PyTorch cannot be imported: {error}") from error
    if transport == "nccl" and not torch.cuda.is_available():
        raise BackendUnusable("PyTorch finds no GPU that it can use")
    return torch


def _torch_probe(torch: Any, stream: socket.socket, role: str, terms: Terms, until_s: float, gpu: int) -> PairResult:
    dist, rank = torch.distributed, ROLES.index(role)
    device = torch.device("cuda", gpu) if terms.transport == "nccl" else torch.device("cpu")
    deadline_s = max(0.1, until_s - time.monotonic())
    meeting = PairStore(stream, listens=role == LISTEN, deadline_s=deadline_s)
    try:
        dist.init_process_group(
            terms.transport,
            store=meeting.store(dist),
            rank=rank,
            world_size=2,
            timeout=datetime.timedelta(seconds=deadline_s),
        )
        try:
            return _torch_rounds(torch, dist, device, terms.transport, rank, terms.size_bytes // 4, terms.rounds)
        finally:
            dist.destroy_process_group()
            meeting.end()
    except (RuntimeError, ValueError) as error:  # torch.distributed's errors are RuntimeErrors
        raise ProbeFailed(f"{terms.transport}: {' '.join(str(error).split())[:200]}") from error


def _torch_rounds(
    torch: Any, dist: Any, device: Any, transport: str, rank: int, elements: int, rounds: int
) -> PairResult:
    """Sums of small whole numbers: exact, so that one comparison finds every wrong bit that matters."""
    mine = (torch.arange(elements, device=device) % 1021 + rank * 3).float()
    wanted = (2 * (torch.arange(elements, device=device) % 1021) + 3).float()
    dist.all_reduce(torch.ones(1, device=device))  # connections are made at the first one
    wrong, seconds = 0, 0.0
    for _ in range(rounds):
        vector = mine.clone()
        _wait(torch, device)
        began_s = time.monotonic()
        dist.all_reduce(vector)
        _wait(torch, device)
        seconds += time.monotonic() - began_s
        wrong += int(not bool(torch.equal(vector, wanted)))
    seconds = max(seconds, 1e-9)
    return PairResult(transport, rounds, wrong, elements * 4 * rounds / seconds / 1e9, seconds)


def _wait(torch: Any, device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
