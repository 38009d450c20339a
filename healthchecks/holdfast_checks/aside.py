"""Set aside state files that cannot be read: renamed, never deleted, so that the process continues with a new one."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

MARK = ".unreadable-"
"""In the name of every file that was set aside: ``agent.db.unreadable-20260301T120000Z``."""


@dataclass(frozen=True, slots=True)
class FilesSetAside:
    """Files that a process has set aside and no operator has removed yet."""

    count: int = 0
    since_s: float | None = None
    """Seconds since the epoch, by this machine's clock, at which the oldest was set aside. None: there is none."""

    def __add__(self, other: FilesSetAside) -> FilesSetAside:
        known = [since for since in (self.since_s, other.since_s) if since is not None]
        return FilesSetAside(self.count + other.count, min(known, default=None))


def put_aside(path: Path, why: object, effect: str, do: str, suffixes: Iterable[str] = ()) -> Path | None:
    """Rename the file, or folder, and say so in one line. Raises nothing; None: it could not be renamed, and is where it was.

    ``effect``: what the process does without it; ``do``: what an operator does; ``suffixes``: of files that belong to it."""
    kept = _free_name(path)
    try:
        path.rename(kept)
        for suffix in suffixes:
            part = path.with_name(path.name + suffix)
            if part.exists():
                part.rename(kept.with_name(kept.name + suffix))
    except OSError as error:
        log.error(
            "event=memory_unreadable path=%s reason=%r effect=%r not_renamed=%r", path, str(why), effect, str(error)
        )
        return None
    log.error("event=memory_unreadable path=%s reason=%r kept_as=%s effect=%r do=%r", path, str(why), kept, effect, do)
    return kept


def files_aside(folder: Path) -> FilesSetAside:
    """Files of a folder that were set aside; companions of a database count with it."""
    try:
        found = [path for path in folder.iterdir() if MARK in path.name and "-" not in path.name.rpartition(MARK)[2]]
        times = [path.lstat().st_ctime for path in found]
    except OSError:
        return FilesSetAside()
    return FilesSetAside(len(times), min(times, default=None))


def _free_name(path: Path) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    names = (path.with_name(f"{path.name}{MARK}{stamp}{f'.{n}' if n else ''}") for n in range(1000))
    return next((name for name in names if not name.exists()), path.with_name(f"{path.name}{MARK}{time.time_ns()}"))
