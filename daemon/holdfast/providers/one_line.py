"""Texts of clouds and commands as one line."""

from __future__ import annotations

LONGEST = 300
"""Characters: an encoded authorization message of AWS is long."""


def one_line(text: str) -> str:
    """Without line breaks and control characters, at most ``LONGEST`` characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:LONGEST]
