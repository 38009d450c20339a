"""Parts of Holdfast and its dependencies, and the condition of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class PartName(StrEnum):
    """In the order in which they are shown; what the later ones need comes first."""

    STORE = "store"
    """The database: it answers and takes writes."""
    DISK = "disk"
    """Free space of the file system that holds an SQLite store."""
    LOOP = "loop"
    """The controller's cycle of reading, deciding and recording."""
    LEASE = "lease"
    """Which controller leads."""
    ACTOR = "actor"
    """The process that carries steps out."""
    NOTIFIER = "notifier"
    """The way by which people are notified."""
    SLURM = "slurm"
    PROVIDER = "provider"
    AGENTS = "agents"
    CERTIFICATE = "certificate"
    """The one that the controller serves."""
    CONNECTIONS = "connections"
    """Those that agents and clients have to the controller."""


class Condition(StrEnum):
    GOOD = "good"
    WARNING = "warning"
    """It works; an operator should look in the next days."""
    FAILED = "failed"
    """It does not do its work: an operator is needed now."""
    UNKNOWN = "unknown"
    """Nothing is known of it, and it is no part of what is ready."""


@dataclass(frozen=True, slots=True)
class PartState:
    """Condition of one part."""

    name: PartName
    condition: Condition
    text: str
    """One line: what was found, with its figure."""
    next_step: str = ""
    """One line: what an operator does; empty: nothing."""
    ready: bool = True
    """False: without it this controller is not ready (``/readyz``)."""
    lasts_s: float = 0.0
    """For how long it has failed already, where that is known."""


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """Space on the file system that holds the store."""

    free_bytes: int
    """For users other than root."""
    total_bytes: int
    store_bytes: int
    """The database with its log."""
    store: str = ""
    """The database's file."""
    mount: str = ""
    """Where the file system that holds it is mounted."""


@dataclass(frozen=True, slots=True)
class NotifierState:
    """Delivery of the last notifications."""

    addresses: int = 0
    """0: messages go to the log alone."""
    error: str = ""
    """Reason why the newest one was not delivered; empty: it was, or there was none."""
    failing_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class ProcessState:
    """Status that a process on this machine wrote about itself."""

    at_s: float
    """When, by the machine's monotonic clock."""
    release: str
    problem: str = ""
    """Current problem, such as not reaching the store; empty: none."""
    notifier: NotifierState = field(default_factory=NotifierState)
    held_back: str = ""
    """The actor's own limit that holds steps back, and what to do; empty: none does, or its release does not write it."""


@dataclass(frozen=True, slots=True)
class ProcessSeen:
    """A process as another one of the same machine sees it."""

    silent_s: float
    """Time since its last sign of life; if it gave none, since the other one started to wait for it."""
    state: ProcessState | None = None
    """None: it has written nothing."""


@dataclass(frozen=True, slots=True)
class ConnectionsSeen:
    """The connections to the controller's port at one moment."""

    open: int
    known: int
    """Of these, on which an agent, an operator or a viewer was authenticated."""
    most: int
    """The bound in all."""
    turned_away: int = 0
    """Not taken, or closed for a newer one, in the last ten minutes."""
    address: str = ""
    """Where most of those came from."""


def not_ready(parts: Iterable[PartState]) -> str | None:
    """Reason why the controller is not ready; None: it is."""
    return next((p.text for p in parts if not p.ready), None)
