"""What all layouts share: the candidate at hand, what a judge returns, whether a file is whole."""

from __future__ import annotations

import stat
from dataclasses import dataclass

from holdfast_checkpoint.confined import Bad, Folder, torn
from holdfast_checkpoint.layouts.archives import check_archive, check_safetensors
from holdfast_checkpoint.model import Proof, Verdict
from holdfast_checkpoint.runs import RunId

SKEW_S = 10.0
"""Clocks of two nodes that write into one folder differ by less; saves of a real training are further apart."""


@dataclass(frozen=True)
class Entry:
    """One candidate while it is being judged."""

    root: Folder
    name: str
    status_mode: int

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.status_mode)


@dataclass(frozen=True)
class Judged:
    """What a judge found out about a complete candidate."""

    step: int | None
    size_bytes: int
    proof: Proof
    run: RunId | None = None


def whole_archive(folder: Folder, name: str) -> int:
    """Size of a ``torch.save`` archive in bytes; raises Bad unless it is whole, of kind UNREADABLE where that cannot be told."""
    with folder.file(name) as file:
        check_archive(file)
        return file.size_bytes


def whole_safetensors(folder: Folder, name: str) -> int:
    """Size of a safetensors file in bytes; raises Bad unless it is whole."""
    with folder.file(name) as file:
        check_safetensors(file)
        return file.size_bytes


def contiguous(ranks: set[int], what: str) -> None:
    """Raises Bad(TORN) unless the ranks are 0, 1, 2 …; the highest ones missing cannot be seen this way."""
    missing = set(range(max(ranks, default=-1) + 1)) - ranks
    if missing:
        raise torn(f"{what} of rank {min(missing)} is missing")


def written_before(mark: str, mark_s: float, name: str, written_s: float, *, slack_s: float = SKEW_S) -> None:
    """Raises Bad(UNREADABLE) when a file is younger than the mark that vouches for it.

    A second save into the same folder finds the mark of the first one, which says nothing of it."""
    if written_s > mark_s + slack_s:
        raise Bad(
            Verdict.UNREADABLE,
            f"{name} was written after {mark}: a second save into the same folder did not finish, or it was copied without its times "
            f"(touch {mark} then)",
        )
