"""Text from outside, made fit for a summary or for evidence."""

from __future__ import annotations

MAX_EVIDENCE_CHARS = 300
"""A kernel line in evidence is cut here."""


def one_line(text: str) -> str:
    """Without control characters and cut to :data:`MAX_EVIDENCE_CHARS`."""
    text = text[:MAX_EVIDENCE_CHARS]
    return (text if text.isprintable() else "".join(char if char.isprintable() else " " for char in text)).strip()
