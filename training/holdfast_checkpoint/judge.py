"""Survey of a checkpoint directory: its checkpoints, which are complete, which one is the newest.

Only sizes, zip directories, JSON and Holdfast's manifest are read; nothing is ever unpickled. This module reads with the
rights of its process: a daemon uses :mod:`holdfast_checkpoint.as_user` instead.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from holdfast_checkpoint import layouts
from holdfast_checkpoint.base.confined import Bad, Limits, OpenFolder, Walk, open_root, printable
from holdfast_checkpoint.base.model import Checkpoint, CheckpointVerdict, Layout, Proof, Survey, Unreadable, weakest
from holdfast_checkpoint.beside import Beside, beside_newest, beside_none
from holdfast_checkpoint.candidates import (
    Candidate,
    bad_checkpoint,
    candidates_in,
    lacks,
    of_files,
    older_saves,
    written_s,
)
from holdfast_checkpoint.fence import Fence, last_valid_step, read_fences
from holdfast_checkpoint.going_back import read_abandoned
from holdfast_checkpoint.layouts import CheckpointEntry, plain, written
from holdfast_checkpoint.layouts.common import Judged, whole_archive
from holdfast_checkpoint.layouts.folders import read_folder
from holdfast_checkpoint.layouts.names import Says, read_name
from holdfast_checkpoint.saves import FileSave, SavedFile, saves_of

_DEFAULT = Limits()
_DIGITS = re.compile(r"\d+")
_PAUSE_S = 60.0
"""Shortest pause between two checkpoints of a training: a directory copied without its times has no such pause."""
_FILES = 5_000
"""Files of a folder that are checked for when it was started."""
_READINGS = 3
"""How often a directory is read again that changes meanwhile."""
_CANNOT_BE_TOLD = frozenset({CheckpointVerdict.UNREADABLE, CheckpointVerdict.REFUSED})


def survey(
    directory: str,
    *,
    digests: bool | None = None,
    any_owner: bool = False,
    limits: Limits = _DEFAULT,
    enough: int = 1,
    must_exist: bool = False,
) -> Survey:
    """Verify candidates from the newest on, until ``enough`` are complete; older ones are listed only in :func:`survey_all`.

    A directory that does not exist is empty; with ``must_exist`` it raises Unreadable (it may not be mounted here). ``any_owner``
    accepts files of other users than this one and root. Raises Unreadable when the directory cannot be read."""
    if must_exist and not os.path.isdir(directory):
        raise Unreadable(f"{printable(directory)}: there is no such directory here")
    return _survey(directory, digests, lambda: Walk(limits, any_owner), enough)


def survey_all(
    directory: str, *, digests: bool | None = None, any_owner: bool = False, limits: Limits = _DEFAULT
) -> Survey:
    """Like :func:`survey`, but verify every candidate."""
    return _survey(directory, digests, lambda: Walk(limits, any_owner), limits.entries)


def latest(directory: str, *, any_owner: bool = False, limits: Limits = _DEFAULT) -> Checkpoint | None:
    """The newest complete checkpoint, None when there is none.

    Raises Unreadable when it is unknown which one that is, or whether there is one: starting from zero, or from an old
    state, would lose work."""
    return must_know(survey(directory, any_owner=any_owner, limits=limits))


def must_know(found: Survey, *, ignore_unknown: bool = False) -> Checkpoint | None:
    """The latest checkpoint of a survey. Raises Unreadable rather than return None, or an older one, on missing data.

    ``ignore_unknown``: ignore other files in the directory, for one that holds other weights too."""
    newest = found.latest
    doubtful = [
        c
        for c in found.passed_over
        if c.verdict in (_CANNOT_BE_TOLD if newest is None else (CheckpointVerdict.UNREADABLE,))
    ]
    if doubtful:
        first, than = doubtful[0], f"; it may be newer than {newest.name}" if newest else ""
        raise Unreadable(
            f"{first.path}: {first.reason}{than}: resume from a path that you name yourself, or move it away"
        )
    if not found.strays or ignore_unknown:
        return newest
    stray = os.path.join(found.directory, found.strays[0])
    if newest is None:
        raise Unreadable(
            f"no checkpoint of a known layout directly in {found.directory}, but {stray} may be or hold one: "
            "name its folder, move it away, or start afresh with --ignore-unknown"
        )
    raise Unreadable(
        f"{stray} may be newer than {newest.name}: it was written later or has a higher number, and cannot be judged against it: "
        f"resume from it yourself, move it away, or take {newest.name} with --ignore-unknown"
    )


def verify(path: str, *, any_owner: bool = False, limits: Limits = _DEFAULT) -> Checkpoint:
    """Verify one checkpoint, including every digest. Raises Unreadable, FileNotFoundError."""
    parent, name = os.path.split(os.path.abspath(path))
    walk = Walk(limits, any_owner)
    try:
        with open_root(parent, walk) as root:
            found = candidates_in(root, parent, [name])
            if not found:
                return _unranked(root, parent, name)
            return _Judge(root, read_fences(root)[0], found, digests=True).judged(0)
    except Bad as error:
        raise Unreadable(f"{printable(parent)}: {error.reason}") from error


def _unranked(root: OpenFolder, parent: str, name: str) -> Checkpoint:
    """Verify an entry that is never a directory's newest checkpoint: weights, or an unknown layout."""
    status = root.status(name)
    if status is None:
        raise FileNotFoundError(f"no such checkpoint: {printable(os.path.join(parent, name))}")
    entry = CheckpointEntry(root, name, status.st_mode)
    if entry.is_folder and (layout := layouts.recognise(entry, whatever_name=True)) is not None:
        alone = SavedFile(read_folder(name), status.st_mtime, layout, alone=True)
        return _Judge(root, (), [of_files(parent, save) for save in saves_of([alone])], digests=True).judged(0)
    file = read_name(name)
    if file.says in (Says.NOTE, Says.UNKNOWN) or not stat.S_ISREG(status.st_mode):
        return bad_checkpoint(
            parent, name, Layout.HOLDFAST, Bad(CheckpointVerdict.REFUSED, "no known checkpoint layout")
        )
    try:
        if not file.archive and not plain.begins_as_archive(root, name):
            raise Bad(CheckpointVerdict.UNREADABLE, "of a format that cannot be judged")
        size = whole_archive(root, name)
    except Bad as error:
        return bad_checkpoint(parent, name, Layout.TORCH, error)
    path = os.path.join(parent, name)
    return Checkpoint(name, path, Layout.TORCH, CheckpointVerdict.COMPLETE, size_bytes=size, proof=Proof.STRUCTURE)


def _survey(directory: str, digests: bool | None, walk: Callable[[], Walk], enough: int) -> Survey:
    """Read a directory, again where a candidate was deleted meanwhile: a job that keeps only its last checkpoint always has one, but an
    outdated list of names shows none. One that is gone each time is unreadable."""
    directory = os.path.abspath(directory)
    for _ in range(_READINGS):
        found, changed = _read_once(directory, digests, walk(), enough)
        if not changed and not any(_gone(c) for c in found.candidates):
            return found
    if changed:
        raise Unreadable(f"{printable(directory)}: what is in it changed each time that it was read: ask again")
    return replace(found, candidates=tuple(_as_unreadable(c) if _gone(c) else c for c in found.candidates))


def _gone(checkpoint: Checkpoint) -> bool:
    """Whether it was in the list of names but does not exist any more."""
    return checkpoint.verdict is CheckpointVerdict.TORN and not os.path.lexists(checkpoint.path)


def _as_unreadable(checkpoint: Checkpoint) -> Checkpoint:
    return replace(
        checkpoint, verdict=CheckpointVerdict.UNREADABLE, reason="it was deleted while the directory was read"
    )


def _read_once(directory: str, digests: bool | None, walk: Walk, enough: int) -> tuple[Survey, bool]:
    """Whether nothing in it is complete, and its content has changed meanwhile."""
    try:
        with open_root(directory, walk) as root:
            fences, warnings = read_fences(root)
            names = root.names()
            abandoned, more = read_abandoned(root, fences)
            found = candidates_in(root, directory, names, owned=bool(fences), abandoned=abandoned)
            judge = _Judge(root, fences, found, digests)
            judged = judge.until(enough)
            beside = _beside(root, names, judge, judged)
            whole = any(c.complete for c in judged)
            changed = not whole and bool(names) and set(os.listdir(root.fd)) != set(names)
            return Survey(directory, tuple(judged), (*warnings, *more), beside.strays, beside.others), changed
    except FileNotFoundError:
        return Survey(directory), False
    except Bad as error:
        raise Unreadable(f"{printable(directory)}: {error.reason}") from error


def _beside(root: OpenFolder, names: Sequence[str], judge: _Judge, judged: Sequence[Checkpoint]) -> Beside:
    taken = {name for each in judge.ranked for name in (each.save.names if each.save else (each.checkpoint.name,))}
    rest = [name for name in names if name not in taken]
    at = next((i for i, c in enumerate(judged) if c.complete), None)
    if at is None:
        return beside_none(root, rest)
    found = beside_newest(root, rest, judged[at])
    doubts = [*_own_links(root, judged[:at]), *judge.contradictions(at)]
    return Beside((*doubts, *found.strays), found.others)


def _own_links(root: OpenFolder, passed_over: Sequence[Checkpoint]) -> Iterator[str]:
    """The user's own links among the candidates before the newest one: moved elsewhere, and not read."""
    for checkpoint in passed_over:
        status = (
            root.status(checkpoint.name)
            if checkpoint.verdict is CheckpointVerdict.REFUSED and checkpoint.name.isprintable()
            else None
        )
        if status is not None and stat.S_ISLNK(status.st_mode) and root.walk.takes(status):
            yield checkpoint.name


@dataclass(frozen=True)
class _Judge:
    """Verification of the candidates of one directory, each at its position among the others."""

    root: OpenFolder
    fences: Sequence[Fence]
    ranked: Sequence[Candidate]
    digests: bool | None
    begun: dict[str, float] = field(default_factory=dict)
    """When the first file of a folder was written, where it was looked up."""

    def until(self, enough: int) -> list[Checkpoint]:
        """Verify from the newest on, until this many are complete."""
        found: list[Checkpoint] = []
        complete = 0
        for at in range(len(self.ranked)):
            if complete < enough:
                found.append(self.judged(at))
                complete += found[-1].complete
        return found

    def judged(self, at: int) -> Checkpoint:
        candidate = self.ranked[at].checkpoint
        if candidate.reason:
            return candidate
        try:
            judged = self._read(at)
        except Bad as error:
            return bad_checkpoint(os.path.dirname(candidate.path), candidate.name, candidate.layout, error, candidate)
        limit = last_valid_step(self.fences, judged.run) if judged.run else None
        fenced = limit is not None and judged.step is not None and judged.step > limit
        return Checkpoint(
            name=candidate.name,
            path=candidate.path,
            layout=candidate.layout,
            verdict=CheckpointVerdict.FENCED if fenced else CheckpointVerdict.COMPLETE,
            reason=f"a newer run continued from step {limit}" if fenced else "",
            step=candidate.step if self.ranked[at].save else judged.step,
            size_bytes=judged.size_bytes,
            mtime=candidate.mtime,
            proof=judged.proof,
            run=judged.run,
        )

    def contradictions(self, at: int) -> Iterator[str]:
        """Names of entries sorted after the newest complete one that may still be newer, since number and time disagree.

        A number in a name may be a step, a date or the size of a model, and a training may count from 0 in the directory of an older one;
        only together with the times it shows an order."""
        for other in range(at + 1, len(self.ranked)):
            if self._contradicts(self.ranked[at], self.ranked[other]) and self._may_be_newer(other):
                yield self.ranked[other].checkpoint.name
                return

    def _may_be_newer(self, at: int) -> bool:
        """Whether it is or may be complete; not a folder of unknown layout for a step that has an older save: converted from that."""
        verdict, checkpoint = self.judged(at).verdict, self.ranked[at].checkpoint
        if verdict is not CheckpointVerdict.UNREADABLE or self.ranked[at].files or checkpoint.step is None:
            return verdict in (CheckpointVerdict.COMPLETE, CheckpointVerdict.UNREADABLE)
        same = (c.checkpoint for c in self.ranked if c.checkpoint.step == checkpoint.step)
        return not any(written_s(each) < written_s(checkpoint) for each in same)

    def _contradicts(self, newest: Candidate, other: Candidate) -> bool:
        if newest.aside != other.aside or newest.checkpoint.layout is Layout.HOLDFAST:
            return False
        if not newest.files and not other.files:
            return self._folders_contradict(newest, other)
        later = written_s(other.checkpoint) > written_s(newest.checkpoint)
        if newest.checkpoint.step is not None and newest.checkpoint.step == other.checkpoint.step:
            return False
        if newest.save is None or other.save is None or not newest.save.like(other.save):
            return later
        # ``epoch_latest.pt`` next to ``epoch_2.pt``: a name that is overwritten by each save has no number to compare.
        if not newest.save.head.numbers.order:
            return later
        return later or other.save.head.numbers.order > newest.save.head.numbers.order

    def _folders_contradict(self, newest: Candidate, other: Candidate) -> bool:
        """Times of folders count only if there was a pause in writing between the two: a copy may lack them."""
        known = newest.checkpoint.step is not None and newest.checkpoint.step == other.checkpoint.step
        if known or (other.save is not None and other.save.head.kept):
            return False
        if self._pause_between(newest, other):
            return True
        if newest.save is None or other.save is None or not newest.save.like(other.save):
            return False
        higher = other.save.head.numbers.order > newest.save.head.numbers.order
        return higher and self._pause_between(other, newest)

    def _pause_between(self, first: Candidate, second: Candidate) -> bool:
        """Whether there was a pause in writing to the directory after the first one was finished and before the second."""
        at_s = written_s(first.checkpoint)
        if written_s(second.checkpoint) <= at_s + _PAUSE_S:
            return False
        until_s = self._begun_s(second)
        after = [c for c in self.ranked if at_s < written_s(c.checkpoint)]
        for begun_s, finished_s in sorted((self._begun_s(c), written_s(c.checkpoint)) for c in after):
            if at_s + _PAUSE_S < begun_s <= until_s:
                return True
            at_s = max(at_s, finished_s)
        return False

    def _begun_s(self, candidate: Candidate) -> float:
        """When the first of its files was written."""
        finished_s, folders = written_s(candidate.checkpoint), candidate.save is not None and candidate.save.folder
        part = OpenFolder(self.root.fd, self.root.walk.at_most(_FILES))
        for name in candidate.save.names if candidate.save is not None and folders else ():
            if name not in self.begun:
                with suppress(Bad):
                    self.begun[name] = written.begun_s(CheckpointEntry(part, name, stat.S_IFDIR)) or finished_s
            finished_s = min(finished_s, self.begun.get(name, finished_s))
        return finished_s

    def _read(self, at: int) -> Judged:
        candidate = self.ranked[at]
        checkpoint, save = candidate.checkpoint, candidate.save
        if save is None:
            status = self.root.status(checkpoint.name)
            entry = CheckpointEntry(self.root, checkpoint.name, status.st_mode if status else 0)
            return layouts.judge(checkpoint.layout, entry, digests=self.digests)
        if save.folder:
            judged = [self._read_folder(at, save, part) for part in save.files]
            size, proof = sum(each.size_bytes for each in judged), weakest(each.proof for each in judged)
        else:
            size, proof = sum(whole_archive(self.root, name) for name in save.names), Proof.STRUCTURE
        if reason := lacks(self.ranked, at):
            raise Bad(CheckpointVerdict.UNREADABLE, reason)
        return Judged(checkpoint.step, size, proof)

    def _read_folder(self, at: int, save: FileSave, part: SavedFile) -> Judged:
        """Ignore a damaged file if older saves do not show that it belongs to the save."""
        try:
            return self._judge_folder(at, part)
        except Bad as error:
            belongs = any({save.head.series, part.name.series} <= each.series for each in older_saves(self.ranked, at))
            if error.verdict is not CheckpointVerdict.TORN or len(save.files) == 1 or belongs:
                raise
            raise Bad(
                CheckpointVerdict.UNREADABLE, f"{part.name.name}, which may be a part of it: {error.reason}"
            ) from error

    def _judge_folder(self, at: int, part: SavedFile) -> Judged:
        layout, name = part.layout or Layout.DCP, part.name.name
        entry = CheckpointEntry(self.root, name, stat.S_IFDIR)
        judged = layouts.judge(layout, entry, digests=self.digests)
        older = self._older_folder(at, name) if layout is Layout.TORCH else None
        if older is not None:
            plain.check_like(entry, older)
        return judged

    def _older_folder(self, at: int, name: str) -> str | None:
        """The next older folder of the same series."""
        series = _DIGITS.sub("#", name)
        parts = (part for older in older_saves(self.ranked, at) for part in older.files)
        return next(
            (p.name.name for p in parts if p.layout is Layout.TORCH and _DIGITS.sub("#", p.name.name) == series), None
        )
