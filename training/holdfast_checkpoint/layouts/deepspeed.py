"""DeepSpeed: ``latest`` and ``global_stepN/`` with model states and, under ZeRO, one optimizer shard per rank.

runtime/engine.py, save_checkpoint: all ranks write and commit, then rank 0 writes the tag's name into ``latest``. A tag
that ``latest`` has not reached is therefore a save that did not finish. Missing shards of the highest ranks would not be
noticed otherwise: the number of ranks is only in the pickles.
"""

from __future__ import annotations

import re

from holdfast_checkpoint.base.confined import OpenFolder, torn
from holdfast_checkpoint.base.model import Proof
from holdfast_checkpoint.layouts.common import CheckpointEntry, Judged, contiguous, whole_archive, written_before
from holdfast_checkpoint.layouts.steps import step_in

LATEST = "latest"
_MODEL = re.compile(r"mp_rank_(\d{1,6})_model_states\.pt")
_ZERO = re.compile(r"(?:bf16_)?zero_pp_rank_(\d{1,6})_mp_rank_(\d{1,6})_(optim|model)_states\.pt")
_ANY = re.compile(r"\S*_states\.pt")


def judge(entry: CheckpointEntry) -> Judged:
    """Raise Bad unless ``latest`` has reached this tag and its set of shards is complete."""
    tag = committed_tag(entry.root)
    reached, step = step_in(tag), step_in(entry.name)
    if tag != entry.name and (reached is None or step is None or step > reached):
        raise torn(f"the file latest names {tag}: this save did not finish")
    with entry.root.folder(entry.name) as folder:
        size = judge_tag(folder)
        if tag == entry.name:
            committed_after(entry.root, folder)
        return Judged(step, size, Proof.STRUCTURE)


def committed_tag(root: OpenFolder) -> str:
    """The tag that ``latest`` names; raises Bad(TORN) without one."""
    if root.status(LATEST) is None:
        raise torn("no file latest: no save was finished")
    with root.file(LATEST) as file:
        text = file.read_at(0, min(file.size_bytes, 256)).decode("utf-8", "replace").strip()
    if not text.isprintable() or not text:
        raise torn("the file latest is damaged")
    return text


def committed_after(root: OpenFolder, tag: OpenFolder) -> None:
    """Raise Bad(UNREADABLE) when a file of the tag that ``latest`` names is newer than ``latest``: a repeated save was interrupted."""
    mark = root.status(LATEST)
    for name in (n for n in tag.names() if _ANY.fullmatch(n)):
        status = tag.status(name)
        if mark is not None and status is not None:
            written_before(LATEST, mark.st_mtime, name, status.st_mtime)


def judge_tag(folder: OpenFolder) -> int:
    """Size in bytes of one tag's folder. Raises Bad unless its set of shards is complete."""
    names = [n for n in folder.names() if _ANY.fullmatch(n)]
    models = {int(m[1]) for n in names if (m := _MODEL.fullmatch(n))}
    shards = [(m[3], int(m[2]), int(m[1])) for n in names if (m := _ZERO.fullmatch(n))]
    if not models and not any(kind == "model" for kind, _, _ in shards):
        raise torn("no model states")
    contiguous(models, "mp_rank model states")
    grids = {kind: {(mp, dp) for k, mp, dp in shards if k == kind} for kind in ("optim", "model")}
    for kind, grid in grids.items():
        _check_grid(grid, kind)
    if grids["optim"] and grids["model"] and grids["optim"] != grids["model"]:
        raise torn("optimizer and model shards are not of the same ranks")
    return sum(whole_archive(folder, name) for name in names)


def _check_grid(grid: set[tuple[int, int]], kind: str) -> None:
    rows = {mp for mp, _ in grid}
    columns = {dp for _, dp in grid}
    contiguous(rows, f"{kind} states of model rank")
    contiguous(columns, f"{kind} states")
    if len(grid) != len(rows) * len(columns):
        raise torn(f"{kind} states of {len(rows) * len(columns) - len(grid)} ranks are missing")
