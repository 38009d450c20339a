"""What all layouts share: the candidate at hand, what a judge returns, steps in names."""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass

from holdfast_checkpoint.confined import Folder, torn
from holdfast_checkpoint.layouts.archives import check_safetensors, check_zip
from holdfast_checkpoint.model import Proof
from holdfast_checkpoint.runs import RunId

_STEP = re.compile(r"(?:^|[^a-z])(?:global_?step|step|iter|iteration|checkpoint|ckpt)[-_=]?(\d{1,15})(?!\d)")
_NUMBER = re.compile(r"\d{1,15}")


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


def step_in(name: str) -> int | None:
    """The step that a name states: ``step-120``, ``epoch=3-step=1200.ckpt``, ``iter_0000100``, ``ckpt_120.pt``, ``120``; else None.

    The number in Lightning's ``hpc_ckpt_3.ckpt`` counts its restarts by Slurm."""
    if name.startswith("hpc_ckpt"):
        return None
    match = _STEP.search(name)
    if match:
        return int(match[1])
    return int(name) if _NUMBER.fullmatch(name) else None


def whole_archive(folder: Folder, name: str) -> int:
    """Size of a ``torch.save`` archive in bytes; raises Bad unless it is whole."""
    with folder.file(name) as file:
        check_zip(file)
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
