"""What all layouts share: the candidate at hand, what a judge returns, whether a file is whole."""

from __future__ import annotations

import stat
from dataclasses import dataclass

from holdfast_checkpoint.confined import Folder, torn
from holdfast_checkpoint.layouts.archives import check_archive, check_safetensors
from holdfast_checkpoint.model import Proof
from holdfast_checkpoint.runs import RunId


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
