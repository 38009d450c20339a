"""Path of a batch job's output, with Slurm's patterns filled in as slurmd does. Standard library only."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PATTERN = re.compile(r"%(?P<width>\d{0,2})(?P<letter>[%AaJjNnstuxbr])")
_ESCAPED = re.compile(r"\\(\\?)")
_PSEUDO = frozenset({"dev", "proc", "sys", "run"})
"""Output that goes there has no folder of the user's."""
_WIDTH_MAX = 10
_NO_TASK = 4294967294
"""What slurmd puts in for ``%a`` of a job that is no array's element."""


@dataclass(frozen=True, slots=True)
class OutputOf:
    """Whose output it is: what the patterns stand for."""

    job_id: int
    name: str = ""
    user: str = ""
    host: str = ""
    """Host name of the machine that the script runs on (``%N``), without its domain. Slurm's name of the node may be another."""
    array_job_id: int | None = None
    array_task_id: int | None = None
    restarts: int = 0


def filled_in(path: str, of: OutputOf) -> str:
    """The file that slurmd writes to. Some releases show the path as it was given to sbatch."""
    if "\\" in path:  # sbatch(1): then no pattern is filled in
        return _ESCAPED.sub(r"\1", path)
    values = _values(of)

    def value(found: re.Match[str]) -> str:
        text, width = values[found["letter"]], int(found["width"] or 0)
        return text.zfill(min(width, _WIDTH_MAX)) if width and text.isdigit() else text

    return _PATTERN.sub(value, path)


def users_own(path: str) -> bool:
    """Whether the file is in a folder that may be its user's, and not in one of the kernel's or the system's."""
    folders: list[str] = []
    for each in path.split("/"):
        if each == "..":
            folders = folders[:-1]
        elif each not in ("", "."):
            folders.append(each)
    return len(folders) < 2 or not path.startswith("/") or folders[0] not in _PSEUDO


def as_given(path: str) -> str:
    """A path without patterns in the form in which :func:`filled_in` gives it back."""
    return path.replace("%", "%%")


def _values(of: OutputOf) -> dict[str, str]:
    task = _NO_TASK if of.array_task_id is None else of.array_task_id
    return {
        "%": "%",
        "j": str(of.job_id),
        "J": str(of.job_id),
        "A": str(of.job_id if of.array_job_id is None else of.array_job_id),
        "a": str(task),
        "b": str(task % 10),
        "N": of.host.partition(".")[0],
        "n": "0",
        "s": "batch",
        "t": "0",
        "u": of.user,
        "x": of.name,
        "r": str(of.restarts),
    }
