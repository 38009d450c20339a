"""Durable, atomic writes: a crash at any point leaves the old state or the new one."""

from __future__ import annotations

import os


def write_new(path: str, data: bytes) -> None:
    """Write a file and sync it to disk; its folder entry may still be lost. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def replace(path: str, data: bytes) -> None:
    """Replace the content of a path, durably once this returns. Raises OSError."""
    temporary = f"{path}.tmp"
    write_new(temporary, data)
    os.rename(temporary, path)
    sync_folder(os.path.dirname(path))


def create(path: str, data: bytes, temporary: str) -> bool:
    """Like :func:`replace`, but only if the name does not exist; False if it does. Raises OSError.

    link(2) is atomic on every file system that clusters use, NFS included, where O_EXCL and locks are not always."""
    write_new(temporary, data)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)
    sync_folder(os.path.dirname(path))
    return True


def sync_folder(path: str) -> None:
    """Sync a folder's entries to disk. Raises OSError."""
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
