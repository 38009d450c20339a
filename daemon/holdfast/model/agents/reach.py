"""Connects from the head node to a node's slurmd: the sign of life that needs neither agent nor Slurm. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class HeadProbe:
    """One TCP connect from the head node to a node's slurmd."""

    at: datetime
    answered: bool
    """The connection was accepted or refused: the node's kernel lives."""
    answered_at: datetime | None = None
    """When the newest connect of this silence was answered; of a node without an agent the newest of all. None: none was."""
    failures: int = 0
    """Number of connects in a row without an answer."""
    failing_since: datetime | None = None
    """The first of these; None: it was answered."""
