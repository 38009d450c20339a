"""NeMo and Megatron: a folder with ``weights/`` in DCP form (NeMo 2), or ``iter_N/`` in DCP form (Megatron-LM).

NeMo puts an empty file ``NAME-unfinished`` next to a checkpoint while it is being written
(``NeMoModelCheckpoint.UNFINISHED_CHECKPOINT_SUFFIX``); Megatron-LM writes ``latest_checkpointed_iteration.txt`` last.
"""

from __future__ import annotations

import stat
from collections.abc import Collection

from holdfast_checkpoint.base.confined import OpenFolder, torn
from holdfast_checkpoint.layouts import dcp
from holdfast_checkpoint.layouts.common import CheckpointEntry, Judged, whole_archive
from holdfast_checkpoint.layouts.names import Says, read_name
from holdfast_checkpoint.layouts.steps import step_in

WEIGHTS = "weights"
_COMMON = "common.pt"
TRACKER = "latest_checkpointed_iteration.txt"


def has_weights(folder: OpenFolder, names: Collection[str]) -> bool:
    """Whether a folder has ``weights/`` with only files of NeMo's DCP form, so that a missing marker shows an unfinished save; not for
    other programs, or NeMo in Zarr form."""
    status = folder.status(WEIGHTS) if WEIGHTS in names else None
    if status is None or not stat.S_ISDIR(status.st_mode):
        return False
    with folder.folder(WEIGHTS) as weights:
        inside = weights.names()
    return all(n in (dcp.METADATA, _COMMON) or n.endswith(".distcp") or read_name(n).says is Says.NOTE for n in inside)


def judge(entry: CheckpointEntry) -> Judged:
    """Raise Bad unless the markers of both frameworks show that the save finished and the DCP folder is complete."""
    step = step_in(entry.name)
    if entry.root.status(f"{entry.name.removesuffix('.ckpt')}-unfinished") is not None:
        raise torn("its -unfinished mark is still there")
    _check_tracker(entry.root, step, entry.name)
    with entry.root.folder(entry.name) as folder:
        if WEIGHTS in folder.names():
            with folder.folder(WEIGHTS) as weights:
                size, proof = dcp.judge_folder(weights)
                size += _common(weights)
        else:
            size, proof = dcp.judge_folder(folder)
            size += _common(folder)
    return Judged(step, size, proof)


def _common(folder: OpenFolder) -> int:
    return whole_archive(folder, _COMMON) if folder.status(_COMMON) is not None else 0


def _check_tracker(root: OpenFolder, step: int | None, name: str) -> None:
    if not name.startswith("iter_") or root.status(TRACKER) is None:
        return
    with root.file(TRACKER) as file:
        text = file.read_at(0, min(file.size_bytes, 32)).decode("ascii", "replace").strip()
    if text.isdigit() and step is not None and step > int(text):
        raise torn(f"{TRACKER} names {text}: this save did not finish")
