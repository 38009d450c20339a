"""Numbers of things, for people. Pure."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def are(number: int) -> str:
    """The verb behind them."""
    return "is" if number == 1 else "are"
