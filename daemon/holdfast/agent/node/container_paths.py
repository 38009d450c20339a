"""Translate paths between a job's container and the node. Uses only mount tables: no file system is accessed.

A job says ``/ckpt`` where the node has ``/fsx/me/run7``: both mount tables name the same device, and the path within it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from holdfast.model.jobs.said import CONTROL, PATH_MAX
from holdfast_checks.probes import process_files
from holdfast_checks.probes.mounts import unescaped

MOST_BYTES = 1 << 16
"""Size limit for a container's mount table: about 400 mounts. It is read when a job connects, and kept while the connection lasts."""


@dataclass(frozen=True, slots=True)
class ContainerMount:
    """One line of ``/proc/PID/mountinfo``."""

    device: str
    """``major:minor``: one file system, wherever it is mounted."""
    root: PurePosixPath
    """The part of the file system that is mounted."""
    point: PurePosixPath


def read_mounts(text: str) -> tuple[ContainerMount, ...]:
    """Parse a mount table, in the kernel's order; lines of another form are skipped. Only newline and space separate: the kernel escapes
    both."""
    rows = (line.split(" ") for line in text.split("\n"))
    return tuple(
        ContainerMount(row[2], _path(row[3]), _path(row[4]))
        for row in rows
        if len(row) > 4 and ":" in row[2] and not row[3].endswith("//deleted")
    )


def translate(path: str, inside: Sequence[ContainerMount], outside: Sequence[ContainerMount]) -> str | None:
    """Translate ``path`` from the mounts ``inside`` to the mounts ``outside``; None: it is not mounted there.

    Of several paths, the same one is preferred, else that of the earliest mount. ``path`` is absolute; links in it are not followed."""
    name = PurePosixPath(os.path.normpath(path))
    held = _cover(name, inside)
    if held is None:
        return None
    within = held.root / name.relative_to(held.point)
    names = [
        found
        for mount in outside
        if mount.device == held.device and within.is_relative_to(mount.root)
        if _cover(found := mount.point / within.relative_to(mount.root), outside) is mount
    ]
    return str(name if name in names else names[0]) if names else None


def mounts_of(pid: int) -> str:
    """The process's mount table from the kernel. Empty: it is in no container, or the table is not available, because the process is gone
    or has more mounts than any container: any user may mount 100,000 times in a private namespace."""
    try:
        if os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt"):
            return ""
        return _text(str(pid), MOST_BYTES)
    except OSError:
        return ""


def on_node(path: str, inside: str) -> str:
    """Path on the node for ``path`` under these mounts (:func:`mounts_of`); the path itself where it is not known."""
    try:
        found = translate(path, read_mounts(inside), read_mounts(_text("self"))) if inside else None
    except OSError:
        return path
    return path if found is None or CONTROL.search(found) or len(found) > PATH_MAX else found


def as_said(path: str, directory: str, said: str) -> str:
    """A path below ``directory``, in the terms of a sender whose path for that directory is ``said``."""
    folder = directory.rstrip("/") + "/"
    return said.rstrip("/") + "/" + path.removeprefix(folder) if path.startswith(folder) else path


def _text(process: str, most_bytes: int = 1 << 24) -> str:
    """Read the mount table; empty where it is longer. The kernel produces it while it is read, so never more than this."""
    found = process_files.read(f"/proc/{process}/mountinfo", most_bytes + 1)
    return "" if len(found) > most_bytes else found.decode(errors="replace")


def _cover(path: PurePosixPath, mounts: Sequence[ContainerMount]) -> ContainerMount | None:
    """The innermost mount that holds the path; of two at one point the later one."""
    best: ContainerMount | None = None
    for mount in mounts:
        if path.is_relative_to(mount.point) and (best is None or len(mount.point.parts) >= len(best.point.parts)):
            best = mount
    return best


def _path(word: str) -> PurePosixPath:
    return PurePosixPath(unescaped(word))
