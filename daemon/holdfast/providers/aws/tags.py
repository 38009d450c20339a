"""Tags by which Holdfast knows its machines on EC2. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TagKeys:
    """Keys of the tags by which Holdfast identifies its machines."""

    cluster: str = "holdfast:cluster"
    node: str = "holdfast:node"
    """Slurm node name."""
    incident: str = "holdfast:incident"
    token: str = "holdfast:token"  # noqa: S105 - a tag's name
    role: str = "holdfast:role"
    """``candidate`` until handed over, ``serving`` after, ``retired`` once another has its name. Absent is serving."""
    order: str = "holdfast:order"
    """The last order for the machine: ``stop`` or ``replace``, the token, and when."""
