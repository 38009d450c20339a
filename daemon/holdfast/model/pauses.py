"""Pauses that double after each failure. Pure; standard library only."""

from __future__ import annotations

_MOST_DOUBLINGS = 64
"""Beyond it every pause is its longest, and the power would become a number that no float holds."""


def doubling_s(first_s: float, failures: int, longest_s: float) -> float:
    """Pause in seconds after this many failures, one at least: ``first_s``, then twice the one before, at most ``longest_s``."""
    return float(min(first_s * 2 ** min(max(failures - 1, 0), _MOST_DOUBLINGS), longest_s))
