"""Settings of a replica group, which the launcher sets in the environment."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from holdfast_train.errors import Unusable
from holdfast_train.sizes import Sizes, parse_sizes


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """One replica group of one job."""

    quorum: str
    """``http://host:port`` of the job's rendezvous, or of a stock torchft_lighthouse."""
    ours: bool
    """Whether it is Holdfast's quorum service, to which leaves are reported. A stock lighthouse would take that for a new group."""
    token: str
    """Shared only by the groups of the job."""
    group: int
    incarnation: str
    sizes: Sizes
    address: str
    """Address of this node for peers; state is served only on it."""
    collective_timeout_s: float = 30.0
    """Timeout of a step in which a peer stops answering, and of the transfer of a peer's state."""
    quorum_timeout_s: int = 600
    """How long the quorum service may be unreachable."""
    quorum_retries: int = 1200
    """Retries meanwhile: torchft sleeps ``quorum_timeout_s`` / (retries + 1) between two attempts."""
    rank: int = 0
    """Rank of this process in its group."""
    ranks: int = 1


def settings_from_env(env: Mapping[str, str]) -> TrainSettings:
    """Raises Unusable."""
    ours = env.get("HOLDFAST_QUORUM", "")
    quorum = ours or env.get("TORCHFT_LIGHTHOUSE", "")
    if not quorum:
        raise Unusable(
            "HOLDFAST_QUORUM is not set: 'holdfast run' sets it in an elastic job of Slurm; elsewhere name a "
            "torchft_lighthouse in TORCHFT_LIGHTHOUSE, as http://host:port"
        )
    token = env.get("HOLDFAST_QUORUM_TOKEN", "")
    if not token:
        raise Unusable(
            "HOLDFAST_QUORUM_TOKEN is not set: give all groups of the job one secret; without it any user could read or "
            "forge its state"
        )
    rank, ranks = _whole(env, "RANK", 0), _whole(env, "WORLD_SIZE", 1)
    if ranks < 1 or rank >= ranks:
        raise Unusable(f"RANK={rank} and WORLD_SIZE={ranks} do not go together")
    if ranks > 1 and not (env.get("MASTER_ADDR") and _whole(env, "MASTER_PORT", 0)):
        raise Unusable("MASTER_ADDR or MASTER_PORT is not set: where do the ranks of this group meet?")
    return TrainSettings(
        quorum=quorum,
        ours=bool(ours),
        token=token,
        group=_whole(env, "HOLDFAST_GROUP", _whole(env, "SLURM_ARRAY_TASK_ID", 0)),
        incarnation=env.get("HOLDFAST_INCARNATION") or secrets.token_hex(8),
        sizes=_sizes(env),
        address=env.get("HOLDFAST_ADDRESS") or address_towards(quorum),
        collective_timeout_s=_seconds(env, "HOLDFAST_COLLECTIVE_TIMEOUT_S", 30.0),
        quorum_timeout_s=max(1, _whole(env, "TORCHFT_QUORUM_TIMEOUT_SEC", 600)),
        quorum_retries=_whole(env, "TORCHFT_QUORUM_RETRIES", 1200),
        rank=rank,
        ranks=ranks,
    )


def address_towards(url: str) -> str:
    """The address of this machine on the route to that host; nothing is sent. Raises Unusable."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise Unusable(f"{url!r} is not the address of a quorum service") from error
    if parts.scheme != "http" or host is None or port is None:
        raise Unusable(f"{url!r} is not the address of a quorum service: it has the form http://host:port")
    try:
        family, kind, _proto, _name, there = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(there)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise Unusable(f"the quorum at {url} cannot be reached: {error}") from error


def _sizes(env: Mapping[str, str]) -> Sizes:
    low, high = _whole(env, "HOLDFAST_MIN_GROUPS", 1), _whole(env, "HOLDFAST_MAX_GROUPS", 0)
    listed = env.get("HOLDFAST_ALLOWED_GROUPS", "").strip()
    if not high and not listed:
        raise Unusable("HOLDFAST_MAX_GROUPS is not set: how many groups may there be?")
    high = high or max((int(part) for part in listed.split(",") if part.isdecimal()), default=0)
    try:
        return parse_sizes(f"{low}:{high}" + (f":{listed.rstrip(',')}," if listed else ""))
    except Unusable as error:
        given = f"HOLDFAST_MIN_GROUPS={low} HOLDFAST_MAX_GROUPS={high} HOLDFAST_ALLOWED_GROUPS={listed!r}"
        raise Unusable(f"{given}: {error}") from error


def _whole(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Unusable(f"{name}={text[:80]!r} is no whole number")
    return int(text)


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name, "")
    try:
        value = float(text or default)
    except ValueError:
        value = -1.0
    if not 0.1 <= value <= 86_400:
        raise Unusable(f"{name}={text[:80]!r} is not a number of seconds between 0.1 and 86400")
    return value
