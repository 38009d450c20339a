"""Small files that others read while they are written."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def write_whole(
    path: Path,
    content: str | bytes,
    mode: int | None = None,
    *,
    owner: tuple[int, int] | None = None,
    durable: bool = False,
) -> None:
    """Replace the file: readers find the old one or the new one, never a part. Raises OSError.

    The draft is made again, under its own descriptor: in a folder that another user may write to, no link of theirs is followed.
    ``mode``: None leaves it to the umask. ``owner``: user and group id. ``durable``: its content is on disk first."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_native_id()}")
    draft.unlink(missing_ok=True)  # of a process that has ended
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(draft, flags, 0o666 if mode is None else 0o600), "wb") as file:
            if owner is not None:
                os.fchown(file.fileno(), *owner)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(content.encode() if isinstance(content, str) else content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
