"""Plain ``torch.save``: ``ckpt_120.pt``, ``last.pt``, or ``step_120/`` with one such file and nothing else that could hold weights.

A folder with several files has no mark that its save is finished, and one of a library that is not known has none that could be read: both
are *unreadable*, so that a job does not start afresh beside them. Which files are of one save says :mod:`holdfast_checkpoint.saves`.
"""

from __future__ import annotations

import re

from holdfast_checkpoint.confined import Bad, Folder
from holdfast_checkpoint.layouts.archives import begins_as_torch
from holdfast_checkpoint.layouts.common import Entry, Judged, whole_archive
from holdfast_checkpoint.layouts.names import CKPT, FileName, Says, product_folder, read_name
from holdfast_checkpoint.layouts.steps import step_in
from holdfast_checkpoint.model import Proof, Verdict

_DIGITS = re.compile(r"\d+")


def is_save(folder: Folder, file: FileName) -> bool:
    """Whether a file is named as a save and can be judged as an archive. Where it cannot be opened its judge says why."""
    if file.suffix == CKPT and file.archive:
        return file.says is not Says.UNFINISHED and not file.origin
    if file.says is not Says.SAVE or file.origin:
        return False
    return file.archive or begins_as_archive(folder, file.name)


def begins_as_archive(folder: Folder, name: str) -> bool:
    """Whether a file of whatever suffix begins as ``torch.save`` writes; False where it cannot be opened."""
    try:
        with folder.file(name) as file:
            return begins_as_torch(file)
    except Bad:
        return False


def holds_state(names: list[str]) -> bool:
    """Whether anything in a folder may hold training state."""
    return any(read_name(name).says is not Says.NOTE and not product_folder(name.partition(".")[0]) for name in names)


def judge(entry: Entry) -> Judged:
    """Raises Bad unless it is one whole archive; of kind UNREADABLE where that cannot be told."""
    if not entry.is_folder:
        return Judged(step_in(entry.name), whole_archive(entry.root, entry.name), Proof.STRUCTURE)
    with entry.root.folder(entry.name) as folder:
        others = state_files(folder)
        archives = [name for name in others if read_name(name).archive or begins_as_archive(folder, name)]
        if len(others) == 1 and archives:
            return Judged(step_in(entry.name), whole_archive(folder, archives[0]), Proof.STRUCTURE)
    if len(archives) > 1:
        raise Bad(Verdict.UNREADABLE, f"{len(archives)} archives and no mark that says when the save is finished")
    raise Bad(Verdict.UNREADABLE, f"in no known layout ({', '.join(others[:3])})")


def state_files(folder: Folder) -> list[str]:
    """Names of what may hold state in a folder."""
    return [name for name in folder.names() if read_name(name).says is not Says.NOTE]


def check_like(entry: Entry, older: str) -> None:
    """Raises Bad(UNREADABLE) when a folder lacks a file that the folder of an older save has."""
    with entry.root.folder(entry.name) as folder:
        here = {_DIGITS.sub("#", name) for name in state_files(folder)}
    with entry.root.folder(older) as folder:
        missing = [name for name in state_files(folder) if _DIGITS.sub("#", name) not in here]
    if missing:
        raise Bad(Verdict.UNREADABLE, f"has no file like {missing[0]} of {older}: unknown whether its save is finished")
