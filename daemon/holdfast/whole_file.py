"""Small files that others read while they are written."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: str | bytes, mode: int) -> None:
    """Replace the file: readers find the old one or the new one, never a part. Not durable over a loss of power. Raises OSError.

    The draft is made anew, under its own descriptor: in a folder that another user may write to, no link of theirs is followed."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)  # of a process that has ended
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content.encode() if isinstance(content, str) else content)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
