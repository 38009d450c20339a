"""Background data that changes slowly and costs a query: nodes' histories and Slurm's topology, read every few minutes and not in each
cycle.

Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Outage:
    """One time that a fault took a node out of service."""

    node: str
    incident_id: str
    instance_id: str
    """Machine that had the fault; empty: not known."""
    what: str
    """The incident's headline."""
    out_at: datetime
    back_at: datetime | None = None
    """When the node served again; None: it does not yet, or that is not on record."""
    by_others: bool = False
    """An operator or another tool returned it: not counted for Holdfast's repair times."""
    over: bool = False
    """The incident is closed."""
    ended: str = ""
    """End of the outage, for people; empty: it is open, or not known."""
    excused: bool = False
    """Not the node's doing: the job was the suspect, or a restart of the job was all that it needed."""

    @property
    def of_incident(self) -> bool:
        """Whether Holdfast had an incident for it; else it is a drain of others that a rule of the site counts."""
        return self.incident_id != ""


@dataclass(frozen=True, slots=True)
class Lemon:
    """Verdict on a node from its history, with the reasons."""

    score: int
    """Faults in the window; one soon after a repair counts twice; one more where several users avoid the node."""
    until: datetime | None = None
    """It counts as a lemon until then; None: it does not."""
    reasons: tuple[str, ...] = ()

    def holds(self, at: datetime) -> bool:
        return self.until is not None and at < self.until


@dataclass(frozen=True, slots=True)
class Topology:
    """Node → the switches above it, from the leaf to the root. Empty: Slurm has no topology."""

    switches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def distance(self, one: str, other: str) -> int:
        """Levels of switches between two nodes: 0 on the same leaf; beyond the root if no switch joins them.

        0 also where one of the two is not known: no reason to prefer anything."""
        a, b = self.switches.get(one), self.switches.get(other)
        if a is None or b is None:
            return 0
        above = set(b)
        return next((level for level, switch in enumerate(a) if switch in above), max(len(a), len(b)))


@dataclass(frozen=True, slots=True)
class WantedSpares:
    """Number of spares wanted, and how it is computed."""

    number: int | None
    """None: no number is set or known; the pool gets back what was taken from it."""
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Background:
    """The newest reading. All of it may be missing: then nothing is concluded from it."""

    read_at: datetime | None = None
    since: datetime | None = None
    """Start of the record that the outages are from."""
    outages: tuple[Outage, ...] = ()
    """In the order of time."""
    lemons: Mapping[str, Lemon] = field(default_factory=dict)
    """Nodes with a score."""
    topology: Topology = field(default_factory=Topology)
    by_rule: WantedSpares | None = None
    """Spares wanted by the rule p99, where the site wants them by it."""
    slurm_user: str = ""
    """SlurmUser, in whose name slurmctld drains; empty: not read yet."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Node → IP address, of nodes whose NodeAddr is a name that resolves."""
    slurmd_timeout_s: float | None = None
    """Slurm's SlurmdTimeout; None: not read yet. 0: Slurm never sets a silent node DOWN."""
    return_to_service: int | None = None
    """Slurm's ReturnToService: which DOWN nodes serve again without an operator's resume; None: not read yet."""
    short_since: datetime | None = None
    """Since when fewer spares than wanted are in the pool; None: there are enough, or no number is wanted."""

    def lemon(self, node: str, at: datetime) -> bool:
        known = self.lemons.get(node)
        return known is not None and known.holds(at)
