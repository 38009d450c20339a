"""Plain ``torch.save``: ``ckpt_120.pt``, ``last.pt``, or ``step_120/`` with one such file and nothing else that could hold weights.

A folder with several files has no marker of a finished save, and one of an unknown library has none that could be read: both are
*unreadable*, so that a job does not ignore them and start from zero. :mod:`holdfast_checkpoint.saves` groups the files of one save.
"""

from __future__ import annotations

import re

from holdfast_checkpoint.base.confined import Bad, OpenFolder
from holdfast_checkpoint.base.model import CheckpointVerdict, Proof
from holdfast_checkpoint.layouts.archives import begins_as_torch
from holdfast_checkpoint.layouts.common import CheckpointEntry, Judged, whole_archive
from holdfast_checkpoint.layouts.names import CKPT, FileName, Says, product_folder, read_name
from holdfast_checkpoint.layouts.steps import step_in

_DIGITS = re.compile(r"\d+")


def is_save(folder: OpenFolder, file: FileName) -> bool:
    """Whether a file is named as a save and can be verified as an archive. Where it cannot be opened, verification reports why."""
    if file.suffix == CKPT and file.archive:
        return file.says is not Says.UNFINISHED and not file.origin
    if file.says is not Says.SAVE or file.origin:
        return False
    return file.archive or begins_as_archive(folder, file.name)


def begins_as_archive(folder: OpenFolder, name: str) -> bool:
    """Whether a file of any suffix starts as ``torch.save`` writes it; False where it cannot be opened."""
    try:
        with folder.file(name) as file:
            return begins_as_torch(file)
    except Bad:
        return False


def holds_state(names: list[str]) -> bool:
    """Whether anything in a folder may hold training state."""
    return any(read_name(name).says is not Says.NOTE and not product_folder(name.partition(".")[0]) for name in names)


def judge(entry: CheckpointEntry) -> Judged:
    """Raise Bad unless it is one complete archive; UNREADABLE where that is unknown."""
    if not entry.is_folder:
        return Judged(step_in(entry.name), whole_archive(entry.root, entry.name), Proof.STRUCTURE)
    with entry.root.folder(entry.name) as folder:
        others = state_files(folder)
        archives = [name for name in others if read_name(name).archive or begins_as_archive(folder, name)]
        if len(others) == 1 and archives:
            return Judged(step_in(entry.name), whole_archive(folder, archives[0]), Proof.STRUCTURE)
    if len(archives) > 1:
        raise Bad(
            CheckpointVerdict.UNREADABLE, f"{len(archives)} archives and no mark that says when the save is finished"
        )
    raise Bad(CheckpointVerdict.UNREADABLE, f"in no known layout ({', '.join(others[:3])})")


def state_files(folder: OpenFolder) -> list[str]:
    """Names of files in a folder that may hold state."""
    return [name for name in folder.names() if read_name(name).says is not Says.NOTE]


def check_like(entry: CheckpointEntry, older: str) -> None:
    """Raise Bad(UNREADABLE) when a folder lacks a file that the folder of an older save has."""
    with entry.root.folder(entry.name) as folder:
        here = {_DIGITS.sub("#", name) for name in state_files(folder)}
    with entry.root.folder(older) as folder:
        missing = [name for name in state_files(folder) if _DIGITS.sub("#", name) not in here]
    if missing:
        raise Bad(
            CheckpointVerdict.UNREADABLE,
            f"has no file like {missing[0]} of {older}: unknown whether its save is finished",
        )
