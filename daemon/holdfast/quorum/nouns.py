"""Data classes of a rendezvous: frozen, without behavior except their own text."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from holdfast.quorum.identity import GroupIdentity
from holdfast_checks.words import unknown_reads_as

MEMBERS_MAX = 4096


class MemberRefused(Exception):
    """Raised when a member may not take part, with a one-line reason."""


class Away(Exception):
    """The rendezvous stops answering, for reasons unrelated to the caller, which should ask again."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules by which a rendezvous decides."""

    min_groups: int = 1
    max_groups: int = 1024
    """Groups beyond this number wait as spares."""
    heartbeat_timeout_s: float = 5.0
    """A member without a heartbeat for this long is lost. torchft's default; its Managers send ten heartbeats a second."""
    join_timeout_s: float = 60.0
    """How long members that request a quorum wait for members that are alive but do not. torchft's default."""
    members_max: int = MEMBERS_MAX
    """Members known at a time; a limit on memory, not on the job."""
    groups: int = 0
    """Members must belong to the groups 0 … groups-1, with a start named as Slurm counts starts (``JOB.RESTARTS[.n]``); 0: any name
    is accepted. Members that have joined already stay, whatever their name."""


@unknown_reads_as("evicted", "this start of the group stays out of the rendezvous for good")
class Departure(StrEnum):
    """How a member went for good."""

    EVICTED = "evicted"
    LEFT = "left"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True)
class GoneMember:
    why: Departure
    reason: str

    def __str__(self) -> str:
        return f"{self.why.value} ({self.reason})" if self.reason else self.why.value


@dataclass(frozen=True, slots=True)
class QuorumMember:
    """One group in a quorum request: what torchft's Managers exchange through the rendezvous."""

    identity: GroupIdentity
    wire_id: str
    """The name by which its Manager finds itself in the answer."""
    address: str
    store_address: str
    step: int
    world_size: int
    shrink_only: bool = False
    commit_failures: int = 0
    """Consecutive steps that it could not commit; above 0 the next quorum gets a new id, so that all members reconnect."""
    data: str = ""


@dataclass(frozen=True, slots=True)
class Quorum:
    id: int
    members: tuple[QuorumMember, ...]

    @property
    def step(self) -> int:
        return max((m.step for m in self.members), default=0)


@dataclass(frozen=True, slots=True)
class RoomEvent:
    """Something for the record. ``kind``: joined, lost, back, evicted, left, replaced, quorum, done, closed, omitted."""

    kind: str
    who: str = ""
    reason: str = ""
    quorum_id: int = 0
    step: int = 0
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RendezvousSnapshot:
    """State of a rendezvous that outlives the process."""

    rules: Rules
    last: Quorum | None = None
    next_id: int = 1
    gone: dict[str, GoneMember] = field(default_factory=dict)
    spares: frozenset[str] = frozenset()
    done: bool = False
    """A member of the last quorum reported the training as done: no one may join any more."""
    newest: dict[str, int] = field(default_factory=dict)
    """``GROUP~JOB`` → restarts of its newest start seen; the oldest entry first."""
    gone_since_s: dict[str, float] = field(default_factory=dict)
    """When each entry of ``gone`` was added, in seconds since 1970."""
