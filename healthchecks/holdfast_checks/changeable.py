"""Whether a program, or a file of settings, can be changed by users who must not. Standard library only."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Sequence
from pathlib import Path

_INTERPRETERS = re.compile(r"(python|pypy|perl|ruby|node|lua|env|a?sh|bash|dash|ksh|zsh)[0-9.]*")


def what_runs(command: Sequence[str]) -> tuple[Path, ...]:
    """The files that decide what a command does: its program and, where that is an interpreter, the script that it is given."""
    program, *words = command
    if not _INTERPRETERS.fullmatch(Path(program).name):
        return (Path(program),)
    scripts = (Path(word) for word in words if word.startswith("/") and Path(word).is_file())
    return (Path(program), *scripts)


def changeable_command(command: Sequence[str], others_of_ours: Collection[int] = ()) -> str:
    """As :func:`changeable`, of all files that decide what a command does."""
    return next((why for path in what_runs(command) if (why := changeable(path, others_of_ours))), "")


def changeable(path: Path, others_of_ours: Collection[int] = ()) -> str:
    """How users other than root, this process's own, the owner of this code and ``others_of_ours`` could replace the file; empty: they
    could not. Who owns this code (a developer's checkout that root runs) decides what runs as it is.

    The file itself and each folder above it count; links are followed, and where they lead counts. Raises OSError."""
    ours = {0, os.geteuid(), Path(__file__).stat().st_uid, *others_of_ours}
    real = path.resolve(strict=True)
    for place in (real, *real.parents):
        status = place.stat()
        if status.st_uid not in ours:
            return f"{place} belongs to uid {status.st_uid}, who could change it"
        kept = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if status.st_mode & stat.S_IWOTH and not kept:
            return f"{place} may be written by everybody"
    return ""
