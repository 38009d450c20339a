"""Known checkpoint layouts: detection and verification of directory entries. Nothing here ever unpickles."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Mapping

from holdfast_checkpoint.base.confined import Bad, OpenFolder
from holdfast_checkpoint.base.manifest import MANIFEST, parse_folder_name
from holdfast_checkpoint.base.model import Layout
from holdfast_checkpoint.layouts import dcp, deepspeed, holdfast, huggingface, lightning, nemo, plain
from holdfast_checkpoint.layouts.common import CheckpointEntry, Judged
from holdfast_checkpoint.layouts.folders import read_folder
from holdfast_checkpoint.layouts.names import CKPT, product_folder, read_name, unfinished
from holdfast_checkpoint.layouts.steps import numbers_in, step_in

__all__ = ["CheckpointEntry", "Judged", "is_special", "judge", "named_layout", "parse_folder_name", "recognise"]

_HF_FOLDER = re.compile(r"checkpoint-\d{1,15}")
_STATES = re.compile(r"\S+[_-](?:model|optim)_states\.pt")
_CKPT = ".ckpt"
_JUDGES: Mapping[Layout, Callable[[CheckpointEntry], Judged]] = {
    Layout.DCP: dcp.judge,
    Layout.LIGHTNING: lightning.judge,
    Layout.HUGGINGFACE: huggingface.judge,
    Layout.DEEPSPEED: deepspeed.judge,
    Layout.NEMO: nemo.judge,
    Layout.TORCH: plain.judge,
}


def recognise(entry: CheckpointEntry, *, whatever_name: bool = False) -> Layout | None:
    """The layout of an entry, finished or not; None if it is not a checkpoint (logs, configs). Also None, unless ``whatever_name``, for a
    folder named as the training's starting point, or as stored in addition to its saves.

    Raises Bad when the entry looks like a checkpoint but cannot be read."""
    if not entry.is_folder:
        file = read_name(entry.name)
        if not plain.is_save(entry.root, file):
            return None
        return Layout.LIGHTNING if file.suffix == CKPT else Layout.TORCH
    if parse_folder_name(entry.name):
        return Layout.HOLDFAST
    if unfinished(entry.name):
        return None
    try:
        with entry.root.folder(entry.name) as folder:
            layout = _recognise_folder(entry.name, folder)
    except Bad:
        if named_layout(entry.name) is None:
            return None
        raise
    never = layout is not Layout.HOLDFAST and not whatever_name and read_folder(entry.name).never
    return None if never else layout


def named_layout(name: str) -> Layout | None:
    """The layout by name alone, for entries that cannot be opened; None: not named as a checkpoint."""
    if name.endswith(_CKPT):
        return Layout.LIGHTNING
    if _HF_FOLDER.fullmatch(name):
        return Layout.HUGGINGFACE
    if name.startswith("global_step"):
        return Layout.DEEPSPEED
    if parse_folder_name(name) or name.startswith("step-"):
        return Layout.HOLDFAST
    return Layout.DCP if step_in(name) is not None else None


def is_special(mode: int) -> bool:
    """Whether a directory entry is neither a folder nor a regular file."""
    return not (stat.S_ISDIR(mode) or stat.S_ISREG(mode))


def _recognise_folder(name: str, folder: OpenFolder) -> Layout | None:
    names = folder.names()
    found = set(names)
    is_dcp = dcp.METADATA in found or any(n.endswith(".distcp") for n in names)
    if MANIFEST in found:
        return Layout.HOLDFAST
    if (step_in(name) is not None and nemo.has_weights(folder, found)) or (is_dcp and name.startswith("iter_")):
        return Layout.NEMO
    if name.endswith(_CKPT):
        return Layout.LIGHTNING
    if _HF_FOLDER.fullmatch(name) and huggingface.of_others(folder, found):
        return Layout.DCP if is_dcp else Layout.TORCH
    # What ``trainer.save_state()`` writes next to the saves is not a checkpoint.
    beside_saves = huggingface.STATE in found and any(_HF_FOLDER.fullmatch(n) for n in names)
    if _HF_FOLDER.fullmatch(name) or (huggingface.STATE in found and not beside_saves):
        return Layout.HUGGINGFACE
    if is_dcp:
        return Layout.DCP
    if any(_STATES.fullmatch(n) for n in names) or (name.startswith("global_step") and not plain.holds_state(names)):
        return Layout.DEEPSPEED
    if not numbers_in(name).order or product_folder(name):
        return None
    if not names:
        return Layout.DCP
    return Layout.TORCH if plain.holds_state(names) else None


def judge(layout: Layout, entry: CheckpointEntry, *, digests: bool | None) -> Judged:
    """Verify one entry by its detected layout. Raises Bad unless it is complete."""
    if layout is Layout.HOLDFAST:
        return holdfast.judge(entry, digests)
    return _JUDGES[layout](entry)
