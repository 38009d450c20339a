"""Other files in a checkpoint directory that may be newer than its checkpoints, but cannot be verified.

Without a complete checkpoint, everything counts that may hold training state, three folders deep. With a complete one only newer
files count, and nothing that is common in such directories: logs, files that are being written, the best weights, an average, weights
exported after each save (much smaller than the whole state), parts of a save.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from holdfast_checkpoint import layouts
from holdfast_checkpoint.base.confined import Bad, OpenFolder, OutOfTime, TooManyEntries
from holdfast_checkpoint.base.model import Checkpoint, CheckpointVerdict, Layout
from holdfast_checkpoint.candidates import written_s
from holdfast_checkpoint.fence import FOLDER as FENCES
from holdfast_checkpoint.layouts import CheckpointEntry, huggingface
from holdfast_checkpoint.layouts.common import whole_archive
from holdfast_checkpoint.layouts.folders import read_folder
from holdfast_checkpoint.layouts.names import FileName, Says, product_folder, read_name, unfinished
from holdfast_checkpoint.layouts.steps import step_in
from holdfast_checkpoint.layouts.words import KEPT_BESIDE, ROLLING

_DEPTH = 3
"""Lightning's own default is lightning_logs/version_0/checkpoints/."""
_MOST = 5
_NESTED_ENTRIES = 5_000
"""Depth of the search next to a complete checkpoint; the given directory holds the checkpoints itself."""
_NOTE_BYTES = 4096
_STATE_SHARE = 0.6
"""A file of less than this share of a complete checkpoint's size does not hold a whole state: weights alone are half of it or less."""
_LIKELY = frozenset({Says.SAVE, Says.STATE, Says.UNFINISHED})


@dataclass(frozen=True)
class Beside:
    """Paths below the directory, few of each."""

    strays: tuple[str, ...] = ()
    """Paths that may be a newer checkpoint."""
    others: tuple[str, ...] = ()
    """Unknown files. No reason to stop a job, but none to report that there is no checkpoint either."""


def beside_none(root: OpenFolder, names: Sequence[str]) -> Beside:
    """Paths that may hold training state in a directory without a complete checkpoint. ``names``: of entries that are no candidates.

    A folder that is too large to be read counts. Raises OutOfTime."""
    found: dict[bool, list[str]] = {True: [], False: []}
    for path, likely in _everything(root, names):
        if len(found[likely]) < _MOST:
            found[likely].append(path)
        if likely and len(found[likely]) == _MOST:
            break
    return Beside(tuple(found[True]), tuple(found[False]))


def beside_newest(root: OpenFolder, names: Sequence[str], newest: Checkpoint) -> Beside:
    """Paths that may be newer than a complete checkpoint. ``names``: of entries that are no candidates. Other users' files do not count:
    they could stop a job in a shared directory."""
    strays: list[str] = []
    others: list[str] = []
    for name in names:
        with suppress(Bad):
            entry, status = _entry(root, name)
            if status is None or not root.walk.takes(status):
                continue
            if _newer_entry(entry, status, newest):
                strays.append(name)
            elif (
                _unknown(entry, status)
                and _later(status, newest)
                and status.st_size >= _STATE_SHARE * newest.size_bytes
            ):
                others.append(name)
    if not strays:
        part = OpenFolder(root.fd, root.walk.at_most(_NESTED_ENTRIES), root.mtime_s)
        with suppress(Bad):
            strays.extend(_nested_newer(part, names, newest))
    return Beside(tuple(strays[:_MOST]), tuple(others[:_MOST]))


def _entry(root: OpenFolder, name: str) -> tuple[CheckpointEntry, os.stat_result | None]:
    status = root.status(name) if name.isprintable() and name != FENCES else None
    return CheckpointEntry(root, name, status.st_mode if status else 0), status


def _everything(root: OpenFolder, names: Sequence[str], above: str = "", depth: int = 0) -> Iterator[tuple[str, bool]]:
    """(path, whether its name or content is a checkpoint's). What cannot be opened is skipped."""
    for name in names:
        entry, status = _entry(root, name)
        if status is None:
            continue
        path = f"{above}{name}"
        if layouts.is_special(status.st_mode):
            if not depth and _links_out(entry):
                yield path, True
        elif not entry.is_folder:
            if read_name(name).says in _LIKELY and _may_hold(entry, status):
                yield path, True
            elif _unknown(entry, status):
                yield path, False
        elif depth and _recognised(entry):
            yield path, True
        elif depth < _DEPTH:
            yield from _inside(root, name, path, depth)
        else:
            yield f"{path}/", False


def _inside(root: OpenFolder, name: str, path: str, depth: int) -> Iterator[tuple[str, bool]]:
    try:
        with root.folder(name) as folder:
            yield from _everything(folder, folder.names(), f"{path}/", depth + 1)
    except OutOfTime:
        raise
    except TooManyEntries:
        yield f"{path}/", True
    except Bad:
        return


def _nested_newer(
    root: OpenFolder, names: Sequence[str], newest: Checkpoint, above: str = "", depth: int = 0
) -> Iterator[str]:
    for name in names:
        entry, status = _entry(root, name)
        if status is None or layouts.is_special(status.st_mode) or _beside_by_name(name) or not root.walk.takes(status):
            continue
        if depth and _newer_nested(entry, status, newest, rolling=_rolling(above)):
            yield f"{above}{name}"
        elif entry.is_folder and depth < _DEPTH and not _recognised(entry):
            yield from _inside_newer(root, name, newest, f"{above}{name}/", depth)
    if depth and _saved_into(above, depth) and _newer_state(root, names, newest):
        yield above.rstrip("/")


def _inside_newer(root: OpenFolder, name: str, newest: Checkpoint, above: str, depth: int) -> Iterator[str]:
    try:
        with root.folder(name) as folder:
            yield from _nested_newer(folder, folder.names(), newest, above, depth + 1)
    except (OutOfTime, TooManyEntries):
        raise
    except Bad:
        return


def _newer_entry(entry: CheckpointEntry, status: os.stat_result, newest: Checkpoint) -> bool:
    """Whether an entry of the directory itself may be a newer checkpoint: by its number or by its time."""
    if layouts.is_special(status.st_mode):
        return _links_out(entry) and _later(status, newest)
    if entry.is_folder:
        step = step_in(entry.name)
        newer = _higher(step, newest) or (_later(status, newest) and step != newest.step)
        return newer and step is not None and _recognised(entry)
    file = read_name(entry.name)
    step = file.numbers.step
    if not _counts(file, status, newest):
        return False
    if file.says is Says.SAVE and step is not None and newest.step is not None:
        newer = step > newest.step or (step != newest.step and _later(status, newest))
    else:
        newer = _later(status, newest)
    return newer and _may_hold(entry, status)


def _newer_nested(entry: CheckpointEntry, status: os.stat_result, newest: Checkpoint, *, rolling: bool) -> bool:
    """Whether the content of a folder may be a newer checkpoint: by its number, else by its time."""
    file = read_name(entry.name)
    if entry.is_folder:
        shown, step = _recognised(entry), step_in(entry.name)
    else:
        shown, step = _counts(file, status, newest) and (rolling or file.says is Says.SAVE), file.numbers.step
    if not shown:
        return False
    if step is not None and newest.step is not None:
        return step > newest.step
    return _later(status, newest)


def _counts(file: FileName, status: os.stat_result, newest: Checkpoint) -> bool:
    """Whether a file of this name and size can hold a training's whole state."""
    if file.says not in (Says.SAVE, Says.STATE) or file.aside or file.part or file.suffix == "json":
        return False
    if newest.layout is Layout.HUGGINGFACE and huggingface.WEIGHTS.fullmatch(file.name):
        return False
    whole = file.packed or status.st_size >= _STATE_SHARE * newest.size_bytes
    return file.says is Says.SAVE or whole


def _higher(step: int | None, newest: Checkpoint) -> bool:
    return step is not None and newest.step is not None and step > newest.step


def _later(status: os.stat_result, newest: Checkpoint) -> bool:
    return status.st_mtime > written_s(newest)


def _may_hold(entry: CheckpointEntry, status: os.stat_result) -> bool:
    """Whether a file may hold state: not if empty, a short text (``latest``, which names a folder), or an archive still being written."""
    file = read_name(entry.name)
    if not status.st_size or (file.suffix == "" and _short_text(entry, status)):
        return False
    return file.says is not Says.UNFINISHED or not _cut_off(entry)


def _cut_off(entry: CheckpointEntry) -> bool:
    try:
        whole_archive(entry.root, entry.name)
    except Bad as error:
        return error.verdict is CheckpointVerdict.TORN
    return False


def _unknown(entry: CheckpointEntry, status: os.stat_result) -> bool:
    """Whether it is an unknown file."""
    if not stat.S_ISREG(status.st_mode) or not status.st_size or entry.name.startswith("."):
        return False
    file = read_name(entry.name)
    return file.says is Says.UNKNOWN and not (file.suffix == "" and _short_text(entry, status))


def _short_text(entry: CheckpointEntry, status: os.stat_result) -> bool:
    if status.st_size > _NOTE_BYTES:
        return False
    try:
        with entry.root.file(entry.name) as file:
            text = file.read_at(0, file.size_bytes).decode()
    except (Bad, UnicodeDecodeError):
        return False
    return all(c.isprintable() or c.isspace() for c in text)


def _links_out(entry: CheckpointEntry) -> bool:
    """Whether it is a link with a checkpoint's name that leads elsewhere."""
    if not stat.S_ISLNK(entry.status_mode) or read_name(entry.name).says is not Says.SAVE:
        return False
    with suppress(Bad):
        return not entry.root.alias(entry.name)
    return False


def _recognised(entry: CheckpointEntry) -> bool:
    try:
        return entry.is_folder and layouts.recognise(entry) is not None
    except (OutOfTime, TooManyEntries):
        raise
    except Bad:
        return True


def _beside_by_name(name: str) -> bool:
    """Folders in which a training stores other things."""
    kept = read_folder(name).words & KEPT_BESIDE
    return unfinished(name) or product_folder(name) or bool(kept) or name in ("wandb", "mlruns")


def _rolling(above: str) -> bool:
    """Whether the folder is overwritten by each save: ``last/``."""
    return bool(read_folder(_last(above)).words & ROLLING)


def _last(above: str) -> str:
    return above.rstrip("/").rpartition("/")[2]


def _saved_into(above: str, depth: int) -> bool:
    """Whether a folder may be a save that is recognizable only by its name: ``preempted/``, ``emergency_150/``."""
    name = read_folder(_last(above))
    return (depth == 1 or not name.rolling) and not name.kept


def _newer_state(folder: OpenFolder, names: Sequence[str], newest: Checkpoint) -> bool:
    """Whether the files of a folder without a step in their names were written later, and are as large as a whole state."""
    size, later, state = 0, False, False
    for name in names:
        file, (entry, status) = read_name(name), _entry(folder, name)
        if (
            status is None
            or entry.is_folder
            or not folder.walk.takes(status)
            or file.says is not Says.STATE
            or file.aside
        ):
            continue
        if newest.layout is Layout.HUGGINGFACE and huggingface.WEIGHTS.fullmatch(name):
            continue
        size, later, state = size + status.st_size, later or _later(status, newest), state or not file.part
    return state and later and size >= _STATE_SHARE * newest.size_bytes
