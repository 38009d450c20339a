"""Space on the file system that holds an SQLite store."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.model.parts import DiskRoom


def disk_room(store: Path | None) -> DiskRoom | None:
    """Read now. None: there is no such file here, or it cannot be read."""
    if store is None:
        return None
    try:
        found = os.statvfs(store)
    except OSError:
        return None
    size = sum(_size(store.with_name(store.name + end)) for end in ("", "-wal"))
    return DiskRoom(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, size)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
