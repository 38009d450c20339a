"""Saves of several files or folders: which belong to one save, and whether all of them exist. Pure.

The files do not show how many a save has, but older saves of the same kind do: a save that lacks a file which they have may have
been interrupted, and one of several files without an older one for comparison cannot be verified.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from holdfast_checkpoint.base.model import Layout
from holdfast_checkpoint.layouts.folders import FolderName
from holdfast_checkpoint.layouts.names import CKPT, FileName


@dataclass(frozen=True)
class SavedFile:
    """One file or folder in the directory."""

    name: FileName
    mtime_s: float
    """For a folder: when its save was finished."""
    layout: Layout | None = None
    """The folder's parsed name; None: it is a file."""
    alone: bool = False
    """Whether it is a separate save, whatever its name."""


@dataclass(frozen=True)
class FileSave:
    """The files of one save; the first one is what a job resumes from."""

    files: tuple[SavedFile, ...]
    step: int | None

    @property
    def head(self) -> FileName:
        return self.files[0].name

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(file.name.name for file in self.files)

    @property
    def series(self) -> frozenset[str]:
        """Suffixes of all its files."""
        return frozenset(file.name.series for file in self.files)

    @property
    def written_s(self) -> float:
        return max(file.mtime_s for file in self.files)

    @property
    def folder(self) -> bool:
        """Whether it consists of folders."""
        return self.files[0].layout is not None

    def like(self, other: FileSave) -> bool:
        """Whether both are saves of the same kind, so that their numbers can be compared."""
        return self.head.series == other.head.series


def saves_of(files: Sequence[SavedFile]) -> list[FileSave]:
    """Group files into saves. A step that restarts with each epoch counts as unknown."""
    by_save: dict[tuple[bool, bool, str], dict[str, SavedFile]] = {}
    for file in sorted(files, key=lambda each: each.mtime_s):
        alone = file.alone or file.name.aside or file.name.suffix == CKPT
        key = (file.layout is not None, alone, file.name.name if alone else file.name.save)
        by_save.setdefault(key, {})[file.name.series] = file
    saves = [_save(list(group.values())) for group in by_save.values()]
    restarting = _restarting_series(saves)
    return [replace(save, step=None) if (save.folder, save.head.series) in restarting else save for save in saves]


def lacking(save: FileSave, older: Iterable[FileSave]) -> str:
    """Why it is unknown whether the save has all its files; empty: it has. ``older``: the saves before it, newest first."""
    head = save.head
    if head.suffix == CKPT or save.files[0].alone:
        return ""
    if isinstance(head, FolderName) and head.part and head.bare:
        return "it is part of a save, and the folder does not have the rest"
    former = (each for each in older if save.head.series in each.series)
    last = None if save.head.rolling else next(former, None)
    if last is None:
        if (len(save.files) == 1 and not save.head.part) or _self_contained(save, save.files[1:]):
            return ""
        return f"no older save shows which files belong to it ({', '.join(save.names[:3])})"
    missing = [file for file in last.files if file.name.series not in save.series]
    exported = not any(file.name.part for file in missing) and any(each.series <= save.series for each in former)
    if not missing or exported or _self_contained(save, missing):
        return ""
    return f"it has no file like {missing[0].name.name} of the save before it, so it is unknown whether it is finished"


def _save(files: list[SavedFile]) -> FileSave:
    files.sort(key=lambda each: (each.name.part, not each.name.strong, each.name.name))
    return FileSave(tuple(files), files[0].name.numbers.step)


def _self_contained(save: FileSave, others: Sequence[SavedFile]) -> bool:
    """Whether only the first file has a checkpoint's name, and the others are no parts of one: those are exported weights."""
    return save.head.strong and not save.head.part and not any(f.name.part or f.name.strong for f in others)


def _restarting_series(saves: Sequence[FileSave]) -> set[tuple[bool, str]]:
    """Series of files or folders whose steps do not grow from epoch to epoch."""
    counted = sorted(
        (save for save in saves if save.head.numbers.within_epoch),
        key=lambda save: (save.folder, save.head.series, save.head.numbers.order),
    )
    found = set()
    for series, group in groupby(counted, key=lambda save: (save.folder, save.head.series)):
        orders = [save.head.numbers.order for save in group]
        if any(before[0] < after[0] and after[1] <= before[1] for before, after in zip(orders, orders[1:])):
            found.add(series)
    return found
