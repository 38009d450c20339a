"""Small files that others read while they are written."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, text: str, mode: int) -> None:
    """Replace the file: readers find the old text or the new one, never a part. Not durable over a loss of power. Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.chmod(mode)
    draft.replace(path)
