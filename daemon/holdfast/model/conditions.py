"""Conditions that belong to no incident and that operators are notified of: since when each lasts, so that its end is announced, and a
second occurrence is another matter. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from holdfast_checks.words import unknown_reads_as

CONDITIONS = "conditions"
"""Note of the store that holds :class:`Conditions`."""


@unknown_reads_as(None, "the record of conditions is made again: an end may be announced late, or not at all")
class ConditionKind(StrEnum):
    """What lasts."""

    FILE_SYSTEM = "file_system"
    """A network file system does not answer on several nodes."""
    SILENCE = "silence"
    """Nodes do not report."""
    FREEZE = "freeze"
    """Too many are silent for a verdict: no dead node is found."""
    SPARES = "spares"
    """The spare pool is short."""
    ORPHAN = "orphan"
    """A machine serves nothing."""


@dataclass(frozen=True, slots=True)
class LastingCondition:
    """One occurrence."""

    kind: ConditionKind
    name: str
    """What distinguishes it from others of its kind at the same time."""
    since: datetime
    nodes: tuple[str, ...] = ()
    """Nodes that it was about at any time; empty: none in particular."""
    gone_at: datetime | None = None
    """Since when it is not seen; None: it lasts."""

    @property
    def key(self) -> str:
        """Names this occurrence: the next one has another start."""
        return f"{self.kind.value}/{self.name}@{int(self.since.timestamp())}"


@dataclass(frozen=True, slots=True)
class SeenConditions:
    """What is seen at one time."""

    found: Mapping[tuple[ConditionKind, str], tuple[str, ...]] = field(default_factory=dict)
    """Kind and name → nodes."""
    known: frozenset[ConditionKind] = frozenset()
    """Kinds that can be judged now: of any other, nothing begins and nothing ends."""
    silent: frozenset[str] = frozenset()
    """Nodes in Slurm that do not report: silence is over when the last of its nodes is not among them."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """All that last, or have been gone for less than a settling time."""

    lasting: tuple[LastingCondition, ...] = ()

    def of(self, kind: ConditionKind, name: str) -> LastingCondition | None:
        """The present occurrence."""
        return next((c for c in self.lasting if (c.kind, c.name) == (kind, name)), None)

    def key(self, kind: ConditionKind, name: str) -> str:
        """Its key; empty: it is not on record yet."""
        found = self.of(kind, name)
        return found.key if found is not None else ""

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(c.key for c in self.lasting)
