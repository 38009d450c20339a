"""Candidates for checkpoints in a directory, newest first. Nothing is verified yet."""

from __future__ import annotations

import os
import stat
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import accumulate

from holdfast_checkpoint import layouts
from holdfast_checkpoint.base.confined import Bad, OpenFolder, OutOfTime, printable
from holdfast_checkpoint.base.manifest import save_number
from holdfast_checkpoint.base.model import Checkpoint, CheckpointVerdict, Layout
from holdfast_checkpoint.layouts import CheckpointEntry, written
from holdfast_checkpoint.layouts.folders import read_folder
from holdfast_checkpoint.layouts.names import CKPT, read_name
from holdfast_checkpoint.layouts.steps import step_in
from holdfast_checkpoint.saves import FileSave, SavedFile, lacking, saves_of

_UNNAMED_ENTRIES = 10_000
"""Entries read of a folder without a checkpoint's name, not counted for the walk: a folder of 100,000 samples must not use up its limit."""


@dataclass(frozen=True)
class Candidate:
    """An entry, or several files, that is a checkpoint or has the name of one."""

    checkpoint: Checkpoint
    """Verdict TORN without a reason: still to be verified. With a reason it is final."""
    save: FileSave | None = None
    """None: the library's own, or neither file nor folder."""
    abandoned: bool = False
    """Whether its run has returned to an earlier step since (:mod:`holdfast_checkpoint.going_back`)."""

    @property
    def files(self) -> bool:
        """Whether it is made of plain files."""
        return self.save is not None and not self.save.folder

    @property
    def aside(self) -> bool:
        """Whether it is stored in addition to the training's own saves."""
        return self.save is not None and self.save.head.aside


def candidates_in(
    root: OpenFolder,
    directory: str,
    names: Sequence[str],
    *,
    owned: bool = False,
    abandoned: frozenset[str] = frozenset(),
) -> list[Candidate]:
    """Every entry that is a checkpoint or has the name of one, newest first.

    ``owned``: the directory is the library's own, so plain files and folders in it are not checkpoints. ``abandoned``: names
    that count only where nothing else is complete."""
    found: list[Candidate] = []
    files: list[SavedFile] = []
    for name in names:
        entry = _entry(root, directory, name, owned=owned)
        if isinstance(entry, SavedFile):
            files.append(entry)
        elif entry is not None:
            found.append(Candidate(entry, abandoned=name in abandoned))
    return rank([*found, *(of_files(directory, save) for save in saves_of(files))])


def _entry(root: OpenFolder, directory: str, name: str, *, owned: bool) -> Checkpoint | SavedFile | None:
    try:
        return _looked_at(root, directory, name, owned=owned)
    except OutOfTime:
        raise
    except Bad as error:
        layout = layouts.named_layout(name)
        return bad_checkpoint(directory, name, layout, error) if layout else None


def _looked_at(root: OpenFolder, directory: str, name: str, *, owned: bool) -> Checkpoint | SavedFile | None:
    status = root.status(name)
    if status is None:
        return None
    named = layouts.named_layout(name) is not None
    entry = CheckpointEntry(
        root if named else OpenFolder(root.fd, root.walk.at_most(_UNNAMED_ENTRIES)), name, status.st_mode
    )
    layout = _special_layout(entry) if layouts.is_special(status.st_mode) else layouts.recognise(entry)
    if layout is None or (owned and layout is Layout.TORCH):
        return None
    if stat.S_ISREG(status.st_mode):
        return SavedFile(read_name(name), status.st_mtime)
    if entry.is_folder and layout is not Layout.HOLDFAST:
        return _folder(entry, layout, status)
    own = layouts.parse_folder_name(name)
    return Checkpoint(
        name=name,
        path=os.path.join(directory, name),
        layout=layout,
        verdict=CheckpointVerdict.TORN,
        step=own[0] if own else step_in(name),
        mtime=utc(status.st_mtime),
        run=own[1] if own else None,
    )


def _folder(entry: CheckpointEntry, layout: Layout, status: os.stat_result) -> SavedFile:
    """A folder as part of a save. DCP and plain files may be saved into several folders; other frameworks use one per save."""
    finished_s, alone = None, layout not in (Layout.DCP, Layout.TORCH)
    with suppress(Bad):
        finished_s = written.finished_s(entry, layout)
        alone = alone or (finished_s is None and written.is_empty(entry))
    return SavedFile(read_folder(entry.name), status.st_mtime if finished_s is None else finished_s, layout, alone)


def _special_layout(entry: CheckpointEntry) -> Layout | None:
    """A link, FIFO or device with a checkpoint's name is listed as refused, unless it links to another entry of the directory."""
    if stat.S_ISLNK(entry.status_mode) and entry.root.alias(entry.name):
        return None
    named = layouts.named_layout(entry.name)
    return Layout.TORCH if named is Layout.DCP and read_name(entry.name).archive else named


def of_files(directory: str, save: FileSave) -> Candidate:
    """The save as a candidate to verify."""
    head, layout = save.head, save.files[0].layout
    return Candidate(
        Checkpoint(
            name=head.name,
            path=os.path.join(directory, head.name),
            layout=layout or (Layout.LIGHTNING if head.suffix == CKPT else Layout.TORCH),
            verdict=CheckpointVerdict.TORN,
            step=save.step,
            mtime=utc(save.written_s),
        ),
        save,
    )


def lacks(ranked: Sequence[Candidate], at: int) -> str:
    """Why it is unknown whether a candidate's save is complete; empty: it is complete."""
    save = ranked[at].save
    if save is None or ranked[at].aside:
        return ""
    return lacking(save, older_saves(ranked, at))


def older_saves(ranked: Sequence[Candidate], at: int) -> Iterator[FileSave]:
    """Earlier saves of the same kind (files or folders), newest first."""
    mine = ranked[at]
    for older in ranked[at + 1 :]:
        if older.save is not None and not older.aside and older.files == mine.files:
            yield older.save


def rank(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Newest first: by step, then by the run's generation, the number of the save and time of writing. Checkpoints that its run
    has abandoned follow, and last those stored in addition to the training's own.

    Candidates without a known step (``last.ckpt``, ``checkpoint.pt``) go before the first that was not written later."""
    own = [c for c in candidates if not c.aside]
    return [
        *_ranked(c for c in own if not c.abandoned),
        *_ranked(c for c in own if c.abandoned),
        *_ranked(c for c in candidates if c.aside),
    ]


def _ranked(candidates: Iterator[Candidate]) -> list[Candidate]:
    found = list(candidates)
    stepped = sorted((c for c in found if c.checkpoint.step is not None), key=_age_key, reverse=True)
    oldest = [-s for s in accumulate(map(_mtime, stepped), min)]  # minimum up to here; negative, so that it grows
    places: dict[int, list[Candidate]] = {}
    for loose in sorted((c for c in found if c.checkpoint.step is None), key=_mtime, reverse=True):
        places.setdefault(bisect_left(oldest, -_mtime(loose)), []).append(loose)
    return [c for at in range(len(stepped) + 1) for c in (*places.get(at, ()), *stepped[at : at + 1])]


def _age_key(candidate: Candidate) -> tuple[int, tuple[int, int, int], int, float]:
    checkpoint = candidate.checkpoint
    generation = checkpoint.run.generation if checkpoint.run else (0, 0, 0)
    return checkpoint.step or 0, generation, save_number(checkpoint.name), _mtime(candidate)


def _mtime(candidate: Candidate) -> float:
    return written_s(candidate.checkpoint)


def written_s(checkpoint: Checkpoint) -> float:
    """When it was last written, in seconds since 1970; 0.0: not known."""
    return checkpoint.mtime.timestamp() if checkpoint.mtime else 0.0


def bad_checkpoint(
    directory: str, name: str, layout: Layout, error: Bad, known: Checkpoint | None = None
) -> Checkpoint:
    """A candidate that is not complete, with the reason; ``known``: what was known of it before."""
    shown = printable(name)
    return Checkpoint(
        name=shown,
        path=os.path.join(directory, shown),
        layout=layout,
        verdict=error.verdict,
        reason=printable(error.reason),
        step=known.step if known else step_in(name),
        mtime=known.mtime if known else None,
        run=known.run if known else None,
    )


def utc(seconds: float) -> datetime | None:
    """A file's time; None if it is out of the calendar's range."""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc)
    except (OverflowError, OSError, ValueError):
        return None
