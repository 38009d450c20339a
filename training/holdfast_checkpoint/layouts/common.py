"""Common parts of all layouts: the candidate, the result of a verification, completeness of files."""

from __future__ import annotations

import stat
from dataclasses import dataclass

from holdfast_checkpoint.base.confined import Bad, OpenFolder, torn
from holdfast_checkpoint.base.model import CheckpointVerdict, Proof
from holdfast_checkpoint.base.runs import RunId
from holdfast_checkpoint.layouts.archives import check_archive, check_safetensors

SKEW_S = 10.0
"""Largest clock difference of two nodes that write into one folder; saves of a real training are further apart."""


@dataclass(frozen=True)
class CheckpointEntry:
    """One candidate during its verification."""

    root: OpenFolder
    name: str
    status_mode: int

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.status_mode)


@dataclass(frozen=True)
class Judged:
    """Findings about a complete candidate."""

    step: int | None
    size_bytes: int
    proof: Proof
    run: RunId | None = None


def whole_archive(folder: OpenFolder, name: str) -> int:
    """Size of a ``torch.save`` archive in bytes. Raises Bad unless it is complete; UNREADABLE where that is unknown."""
    with folder.file(name) as file:
        check_archive(file)
        return file.size_bytes


def whole_safetensors(folder: OpenFolder, name: str) -> int:
    """Size of a safetensors file in bytes. Raises Bad unless it is complete."""
    with folder.file(name) as file:
        check_safetensors(file)
        return file.size_bytes


def contiguous(ranks: set[int], what: str) -> None:
    """Raise Bad(TORN) unless the ranks are 0, 1, 2 …; missing ranks at the end are not detected this way."""
    missing = set(range(max(ranks, default=-1) + 1)) - ranks
    if missing:
        raise torn(f"{what} of rank {min(missing)} is missing")


def written_before(mark: str, mark_s: float, name: str, written_s: float, *, slack_s: float = SKEW_S) -> None:
    """Raise Bad(UNREADABLE) when a file is newer than the marker of its completeness.

    A second save into the same folder finds the marker of the first one, which proves nothing about the second."""
    if written_s > mark_s + slack_s:
        raise Bad(
            CheckpointVerdict.UNREADABLE,
            f"{name} was written after {mark}: a second save into the same folder did not finish, or it was copied without its times "
            f"(touch {mark} then)",
        )
