"""Space on the file system that holds an SQLite store."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from holdfast.model.parts import DiskRoom


def disk_room(store: Path | None) -> DiskRoom | None:
    """Space on the store's file system, read now. None: there is no such file here, or it cannot be read."""
    if store is None:
        return None
    try:
        found = os.statvfs(store)
    except OSError:
        return None
    size = sum(_size(store.with_name(store.name + end)) for end in ("", "-wal"))
    room = DiskRoom(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, size)
    return replace(room, store=str(store), mount=str(_mount(store)))


def _mount(store: Path) -> Path:
    """The mount point above the file; the root where there is no other."""
    return next((folder for folder in store.resolve().parents if folder.is_mount()), Path("/"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
