"""A room's nouns: frozen, and without behaviour beyond their own text."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from holdfast.quorum.identity import Identity
from holdfast_checks.words import unknown_reads_as

MEMBERS_MAX = 4096


class Refused(Exception):
    """The one line why this member may not take part."""


class Away(Exception):
    """The room stops answering, and means nobody by it: ask again."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How a room decides."""

    min_groups: int = 1
    max_groups: int = 1024
    """Who asks beyond it waits outside."""
    heartbeat_timeout_s: float = 5.0
    """After so long without a sign of life a member is lost. torchft's own default; its Managers send ten a second."""
    join_timeout_s: float = 60.0
    """How long those who ask wait for those who live and do not. torchft's own default."""
    members_max: int = MEMBERS_MAX
    """Members known at a time; a limit on memory, not on the job."""
    groups: int = 0
    """Who comes in is one of the groups 0 … groups-1, and its start is named as Slurm counts starts (``JOB.RESTARTS[.n]``); 0: any name
    will do. Who is in already stays, whatever its name."""


@unknown_reads_as("evicted", "this start of the group stays out of the rendezvous for good")
class Departure(StrEnum):
    """How a member went for good."""

    EVICTED = "evicted"
    LEFT = "left"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True)
class Gone:
    why: Departure
    reason: str

    def __str__(self) -> str:
        return f"{self.why.value} ({self.reason})" if self.reason else self.why.value


@dataclass(frozen=True, slots=True)
class Member:
    """One group as it asks: what torchft's Managers tell each other through the room."""

    identity: Identity
    wire_id: str
    """The name under which its Manager looks for itself in the answer."""
    address: str
    store_address: str
    step: int
    world_size: int
    shrink_only: bool = False
    commit_failures: int = 0
    """Steps in a row that it could not commit; above 0 the next quorum gets a new id, so that all connect anew."""
    data: str = ""


@dataclass(frozen=True, slots=True)
class Quorum:
    id: int
    members: tuple[Member, ...]

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
class Snapshot:
    """What of a room outlives the process."""

    rules: Rules
    last: Quorum | None = None
    next_id: int = 1
    gone: dict[str, Gone] = field(default_factory=dict)
    spares: frozenset[str] = frozenset()
    done: bool = False
    """A member of the last quorum said that the training is done: nobody comes in any more."""
    newest: dict[str, int] = field(default_factory=dict)
    """``GROUP~JOB`` → restarts of its newest start that was met; the oldest entry first."""
    gone_since_s: dict[str, float] = field(default_factory=dict)
    """Since when each of ``gone`` is there, in seconds since 1970."""
