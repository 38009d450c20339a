"""Environment variables of a rank (table in docs/elastic.md). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.launcher.place import LauncherPlace
from holdfast.launcher.room import GroupRendezvous

LAUNCH_ID = "HOLDFAST_LAUNCH_ID"
"""The mark that identifies every process of a launcher, whatever its parent or session."""
QUORUM_TIMEOUT_S, QUORUM_RETRIES = 600, 1200
"""torchft gives up after its first failed call by default; these values retry every half second for ten minutes."""
_PORTS = range(15_000, 32_000)
"""Below Linux's ephemeral range, so that no outgoing connection holds the port by chance."""


@dataclass(frozen=True, slots=True)
class Start:
    """One start of the group's processes on this node."""

    launch_id: str
    name: str
    """Name of this start; new each time."""
    attempt: int
    nproc: int
    agent_socket: str
    master_port: int
    event_file: str | None = None
    resume_from: str | None = None
    address: str | None = None
    """This node's address on the route to the quorum service."""


def rank_env(
    base: Mapping[str, str], place: LauncherPlace, room: GroupRendezvous | None, start: Start, local_rank: int
) -> dict[str, str]:
    """The environment of one rank. The user's own values for MASTER_ADDR, MASTER_PORT, HOLDFAST_ADDRESS and torchft are kept."""
    env = dict(base)
    env |= {
        LAUNCH_ID: start.launch_id,
        "HOLDFAST_INCARNATION": start.name,
        "HOLDFAST_AGENT_SOCKET": start.agent_socket,
        "RANK": str(place.node_rank * start.nproc + local_rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(place.nodes * start.nproc),
        "LOCAL_WORLD_SIZE": str(start.nproc),
    }
    optional = {
        "HOLDFAST_EVENT_FILE": start.event_file,
        "HOLDFAST_RESUME_FROM": start.resume_from,
        "HOLDFAST_ATTEMPT": str(start.attempt) if start.attempt else None,
    }
    env |= {name: value for name, value in optional.items() if value is not None}
    env.setdefault("MASTER_ADDR", place.head or "127.0.0.1")
    env.setdefault("MASTER_PORT", str(start.master_port))
    if start.address is not None:
        env.setdefault("HOLDFAST_ADDRESS", start.address)
    return env | (_of_room(base, room) if room is not None else {})


def shared_port(job_id: int, step: int) -> int:
    """The port on which the ranks of several nodes meet: each node computes the same one."""
    return _PORTS[(job_id * 31 + step) % len(_PORTS)]


def _of_room(base: Mapping[str, str], room: GroupRendezvous) -> dict[str, str]:
    env = {
        "TORCHFT_LIGHTHOUSE": room.url,
        "HOLDFAST_GROUP": str(room.group),
        "TORCHFT_QUORUM_TIMEOUT_SEC": base.get("TORCHFT_QUORUM_TIMEOUT_SEC", str(QUORUM_TIMEOUT_S)),
        "TORCHFT_QUORUM_RETRIES": base.get("TORCHFT_QUORUM_RETRIES", str(QUORUM_RETRIES)),
    }
    if room.ours:
        env["HOLDFAST_QUORUM"] = room.url
    if room.token:
        env["HOLDFAST_QUORUM_TOKEN"] = room.token
    if room.sizes:
        env |= {
            "HOLDFAST_MIN_GROUPS": str(room.sizes[0]),
            "HOLDFAST_MAX_GROUPS": str(room.sizes[-1]),
            "HOLDFAST_ALLOWED_GROUPS": ",".join(map(str, room.sizes)),
        }
    return env
