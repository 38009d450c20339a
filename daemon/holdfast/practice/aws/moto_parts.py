"""Shared helpers of the patches of moto."""

from __future__ import annotations

from typing import Any

STATE_CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
"""EC2's InstanceState codes (API reference, InstanceState)."""
GONE = ("shutting-down", "terminated")


def put(owner: Any, name: str, value: Any) -> None:
    """Replace a method, property or name in one of moto's classes or modules."""
    setattr(owner, name, value)
