"""When a checkpoint folder was started and finished. The folder's own time changes with every file put into it."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_checkpoint.base.confined import OpenFolder
from holdfast_checkpoint.base.model import Layout
from holdfast_checkpoint.layouts import dcp, huggingface, nemo, plain
from holdfast_checkpoint.layouts.common import CheckpointEntry
from holdfast_checkpoint.layouts.names import Says, read_name

_FILES = 64
"""Most files of a folder whose times are read; a folder with more is judged by its own time."""


def finished_s(entry: CheckpointEntry, layout: Layout) -> float | None:
    """When its marker was written; None where it has none. Raises Bad."""
    with entry.root.folder(entry.name) as folder:
        if layout is Layout.TORCH:
            few = OpenFolder(folder.fd, folder.walk.at_most(_FILES))
            return max((status for name in plain.state_files(few) if (status := _time(folder, name))), default=None)
        if layout is Layout.HUGGINGFACE:
            return _time(folder, huggingface.STATE)
        if layout in (Layout.DCP, Layout.LIGHTNING, Layout.NEMO):
            mark = _time(folder, dcp.METADATA)
            if mark is None and layout is Layout.NEMO:
                with folder.folder(nemo.WEIGHTS) as weights:
                    return _time(weights, dcp.METADATA)
            return mark
    return None


def begun_s(entry: CheckpointEntry) -> float | None:
    """When the first of its files was written; None where it has none. Raises Bad."""
    with entry.root.folder(entry.name) as folder:
        return min(_times(folder, deeper=True), default=None)


def _times(folder: OpenFolder, *, deeper: bool) -> Iterator[float]:
    for name in folder.names():
        status = folder.status(name)
        if status is None or read_name(name).says is Says.NOTE:
            continue
        if CheckpointEntry(folder, name, status.st_mode).is_folder:
            if deeper:
                with folder.folder(name) as inner:
                    yield from _times(inner, deeper=False)
        else:
            yield status.st_mtime


def _time(folder: OpenFolder, name: str) -> float | None:
    status = folder.status(name)
    return status.st_mtime if status is not None else None


def is_empty(entry: CheckpointEntry) -> bool:
    """Whether it is empty. Raises Bad."""
    with entry.root.folder(entry.name) as folder:
        return not folder.names()
