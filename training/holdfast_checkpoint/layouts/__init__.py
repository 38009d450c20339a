"""Known checkpoint layouts: which one a directory entry is, and who judges it. Nothing here ever unpickles."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Mapping

from holdfast_checkpoint.confined import Bad, Folder
from holdfast_checkpoint.layouts import dcp, deepspeed, holdfast, huggingface, lightning, nemo, plain
from holdfast_checkpoint.layouts.common import Entry, Judged, step_in
from holdfast_checkpoint.manifest import MANIFEST, parse_folder_name
from holdfast_checkpoint.model import Layout

__all__ = ["Entry", "Judged", "holds_weights", "is_special", "judge", "named_layout", "parse_folder_name", "recognise"]

_HF_FOLDER = re.compile(r"checkpoint-\d{1,15}")
_STATES = re.compile(r"\S+_(?:model|optim)_states\.pt")
_CKPT = ".ckpt"
_JUDGES: Mapping[Layout, Callable[[Entry], Judged]] = {
    Layout.DCP: dcp.judge,
    Layout.LIGHTNING: lightning.judge,
    Layout.HUGGINGFACE: huggingface.judge,
    Layout.DEEPSPEED: deepspeed.judge,
    Layout.NEMO: nemo.judge,
    Layout.TORCH: plain.judge,
}


def recognise(entry: Entry) -> Layout | None:
    """The layout of an entry, finished or not; None for what is no checkpoint (logs, configs).

    Raises Bad when the entry looks like a checkpoint but cannot be looked into."""
    if not entry.is_folder:
        if entry.name.endswith(_CKPT):
            return Layout.LIGHTNING
        return Layout.TORCH if plain.ARCHIVE.fullmatch(entry.name) and step_in(entry.name) is not None else None
    if parse_folder_name(entry.name):
        return Layout.HOLDFAST
    try:
        with entry.root.folder(entry.name) as folder:
            return _recognise_folder(entry.name, folder)
    except Bad:
        if named_layout(entry.name) is None:
            return None
        raise


def named_layout(name: str) -> Layout | None:
    """The layout that a name alone suggests, for entries that cannot be opened; None: not named as a checkpoint."""
    if name.endswith(_CKPT):
        return Layout.LIGHTNING
    if _HF_FOLDER.fullmatch(name):
        return Layout.HUGGINGFACE
    if name.startswith("global_step"):
        return Layout.DEEPSPEED
    if parse_folder_name(name) or name.startswith("step-"):
        return Layout.HOLDFAST
    return Layout.DCP if step_in(name) is not None else None


def holds_weights(name: str) -> bool:
    """Whether a file of this name holds weights, in whatever layout."""
    return plain.WEIGHTS.fullmatch(name) is not None


def is_special(mode: int) -> bool:
    """Whether a directory entry is neither a folder nor a regular file."""
    return not (stat.S_ISDIR(mode) or stat.S_ISREG(mode))


def _recognise_folder(name: str, folder: Folder) -> Layout | None:
    names = folder.names()
    found = set(names)
    is_dcp = dcp.METADATA in found or any(n.endswith(".distcp") for n in names)
    if MANIFEST in found:
        return Layout.HOLDFAST
    if (nemo.WEIGHTS in found and step_in(name) is not None) or (is_dcp and name.startswith("iter_")):
        return Layout.NEMO
    if name.endswith(_CKPT):
        return Layout.LIGHTNING
    if _HF_FOLDER.fullmatch(name) or huggingface.STATE in found:
        return Layout.HUGGINGFACE
    if is_dcp:
        return Layout.DCP
    if any(_STATES.fullmatch(n) for n in names) or name.startswith("global_step"):
        return Layout.DEEPSPEED
    if step_in(name) is None:
        return None
    return Layout.TORCH if names else Layout.DCP


def judge(layout: Layout, entry: Entry, *, digests: bool | None) -> Judged:
    """Judges one entry as the layout it was recognised as. Raises Bad unless it is complete."""
    if layout is Layout.HOLDFAST:
        return holdfast.judge(entry, digests)
    return _JUDGES[layout](entry)
