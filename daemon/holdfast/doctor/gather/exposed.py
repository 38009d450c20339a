"""The doctor's edge: files of the head node that users can change, or read, who must not."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from holdfast_checks.changeable import changeable, changeable_command


def changeable_files(settings: Path | None, script: Sequence[str], store: Path | None, actor: str) -> tuple[str, ...]:
    """How other users could give the actor other settings, another provider's script or another store. ``actor``: its account; empty:
    not known. What cannot be looked at is left out."""
    ours = _uids(actor)
    looks: list[Callable[[], str]] = []
    if settings is not None:
        looks.append(lambda: changeable(settings, ours) or _of_a_group(settings) or _of_a_group(settings.parent))
    if script:
        looks.append(lambda: changeable_command(script, ours))
    if store is not None:
        looks += [lambda: _of_everybody(store), lambda: _of_everybody(store.parent)]
    return tuple(dict.fromkeys(_said(looks)))


def readable_files(files: Iterable[Path]) -> tuple[str, ...]:
    """Those of these that every user of this machine can read."""
    return tuple(str(path) for path in dict.fromkeys(files) if _is_readable(path))


def _said(looks: Iterable[Callable[[], str]]) -> Iterator[str]:
    for look in looks:
        try:
            if why := look():
                yield why
        except OSError:
            continue


def _of_a_group(path: Path) -> str:
    """The controller, which listens to the network, is in the group that reads the settings."""
    found = path.stat()
    writes = bool(found.st_mode & stat.S_IWGRP) and found.st_gid != 0
    return f"{path} may be written by its group {_group(path)}" if writes else ""


def _group(path: Path) -> str:
    try:
        return path.group()
    except KeyError:
        return str(path.stat().st_gid)


def _of_everybody(path: Path) -> str:
    return f"{path} may be written by everybody" if path.stat().st_mode & stat.S_IWOTH else ""


def _is_readable(path: Path) -> bool:
    """Unless a folder above it keeps others out."""
    try:
        above = all(os.stat(folder).st_mode & stat.S_IXOTH for folder in path.resolve().parents)
        return above and bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def _uids(user: str) -> tuple[int, ...]:
    try:
        return (pwd.getpwnam(user).pw_uid,) if user else ()
    except KeyError:
        return ()
