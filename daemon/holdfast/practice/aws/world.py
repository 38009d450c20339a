"""The emulator's state outside moto: times of transitions, launch tokens, impairments, ids not visible yet."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any


@dataclass(slots=True)
class Delays:
    """How long an instance stays in a transitional state, in seconds. Far shorter than at AWS, so that drills are short."""

    pending_s: float = 0.7
    initializing_s: float = 1.0
    """From running until the status checks are ``ok``."""
    shutting_down_s: float = 0.5
    relaunch_s: float = 0.3
    """From an instance missing in a group to the launch of a new one."""
    slot_reuse_s: float = 0.0
    """From an instance's end until its place in a capacity reservation is free again (minutes at AWS)."""


@dataclass(frozen=True, slots=True)
class TokenLaunch:
    """Record of a ClientToken: its parameters and the reservation that it created."""

    parameters: Mapping[str, str]
    reservation: Any


@dataclass(frozen=True, slots=True)
class ScheduledEvent:
    event_id: str
    code: str
    description: str
    not_before: datetime


@dataclass(frozen=True, slots=True)
class CapacityReservation:
    """A reservation of on-demand capacity (``default``) or a Capacity Block (``capacity-block``)."""

    id: str
    instance_type: str
    total: int
    kind: str = "default"
    ends_at: datetime | None = None
    state: str = "active"


@dataclass(frozen=True, slots=True)
class TagChange:
    at: float
    before: Mapping[str, str]


@dataclass(slots=True)
class EmulatorWorld:
    """One emulator's state outside moto. Guarded by the emulator's lock: one API call at a time."""

    delays: Delays = field(default_factory=Delays)
    replayed_at: float | None = None
    """Unix time of the journal entry being replayed; None: real time."""
    stands_at: float | None = None
    """Unix time at which a test has stopped the clock; None: it runs."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Parameters of the current call, without Action, Version and ClientToken."""
    effects: list[str] = field(default_factory=list)
    """Ids of instances that the current call actually launched, terminated or rebooted."""
    launches: dict[str, TokenLaunch] = field(default_factory=dict)
    ended_launch_is_error: bool = False
    """A ClientToken whose instances are gone gets IdempotentInstanceTerminated instead of the instances as they are."""
    impaired: dict[str, dict[str, datetime]] = field(default_factory=dict)
    """Instance id → ``instance``, ``system`` or ``ebs`` → impaired since."""
    events: dict[str, list[ScheduledEvent]] = field(default_factory=dict)
    """Instance id → its scheduled events; completed ones linger."""
    interrupted: dict[str, datetime] = field(default_factory=dict)
    """Instance id of a spot machine → when its request was marked for termination."""
    stuck: set[str] = field(default_factory=set)
    """Ids of instances that stay ``stopping`` until they are stopped by force."""
    moves: dict[str, int] = field(default_factory=dict)
    """Instance id → how often a start has put it on another host."""
    reservations: dict[str, CapacityReservation] = field(default_factory=dict)
    relaunch_due: dict[str, float] = field(default_factory=dict)
    """Auto Scaling group → Unix time at which it launches what it lacks."""
    groups_without_capacity: set[str] = field(default_factory=set)
    hide_describes: int = 0
    """Number of describe calls in which a new instance is not visible (EC2's eventual consistency)."""
    hidden: dict[str, int] = field(default_factory=dict)
    """Instance id → describes left until it is visible."""

    lag_s: float = 0.0
    """Delay of the data in the current answer; 0 for all calls except describe."""
    tag_changes: dict[str, list[TagChange]] = field(default_factory=dict)
    """Instance id → its tags before each change, oldest first."""

    def seen_at(self) -> float:
        """Unix time of the state that the current call shows."""
        return self.now() - self.lag_s

    def tags_seen(self, instance_id: str, tags: Mapping[str, str]) -> Mapping[str, str]:
        """An instance's tags at ``seen_at``; ``tags`` are the newest."""
        seen_at = self.seen_at()
        later = (change.before for change in self.tag_changes.get(instance_id, ()) if change.at > seen_at)
        return next(later, tags)

    def now(self) -> float:
        """Unix time in seconds; while the journal is replayed, the time of the entry."""
        told = self.replayed_at if self.replayed_at is not None else self.stands_at
        return time.time() if told is None else told

    def utcnow(self) -> datetime:
        """``now`` in moto's form: UTC without a zone."""
        return datetime.fromtimestamp(self.now(), UTC).replace(tzinfo=None)

    def one_describe_passed(self) -> None:
        """Count one describe call for hidden instances."""
        self.hidden = {i: left - 1 for i, left in self.hidden.items() if left > 1}
