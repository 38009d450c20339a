"""Hugging Face Trainer: ``checkpoint-N/`` with weights, optimizer, scheduler, RNG states and ``trainer_state.json``.

transformers/trainer.py, _save_checkpoint: ``trainer_state.json`` is written after the model, the optimizer and the
RNG state, so that without it the save did not finish. When a step is saved a second time, the first save's is there from the start:
files newer than it show an interrupted save. (Other ranks' RNG states and files of callbacks may be newer.)
"""

from __future__ import annotations

import re
import stat
from collections.abc import Collection

from holdfast_checkpoint.base.confined import Bad, OpenFolder, torn
from holdfast_checkpoint.base.model import CheckpointVerdict, Proof
from holdfast_checkpoint.layouts import dcp, deepspeed
from holdfast_checkpoint.layouts.archives import load_json
from holdfast_checkpoint.layouts.common import (
    CheckpointEntry,
    Judged,
    contiguous,
    whole_archive,
    whole_safetensors,
    written_before,
)
from holdfast_checkpoint.layouts.names import read_name
from holdfast_checkpoint.layouts.steps import step_in

STATE = "trainer_state.json"
_ACCELERATE = re.compile(
    r"random_states_\d+\.pkl|custom_checkpoint_\d+\.pkl|(?:optimizer|scheduler|sampler)(?:_\d+)?\.bin"
)
"""accelerate/checkpointing.py, save_accelerator_state: its names for ``optimizer.pt`` and ``rng_state.pth`` of the Trainer."""
_ARCHIVE = re.compile(
    r"(?:optimizer|scheduler|scaler|rng_state(?:_\d+)?|training_args|pytorch_model\S*|adapter_model|optimizer_\d+)"
    r"\.(?:pt|pth|bin)"
)
_RNG = re.compile(r"rng_state_(\d{1,6})\.pth")
_DCP_FOLDER = re.compile(r"(?:pytorch_model_fsdp|optimizer)_\d+")
WEIGHTS = re.compile(r"(?:model|adapter_model|pytorch_model)\S*\.(?:safetensors|bin)")
_SAVED = re.compile(r"(?:optimizer|scheduler|scaler)\S*\.(?:pt|bin)|latest")
_INDEX = re.compile(r"\S+\.(?:safetensors|bin)\.index\.json")


def of_others(folder: OpenFolder, names: Collection[str]) -> bool:
    """Whether the content of a folder ``checkpoint-N`` is not the Trainer's, so that a missing marker proves nothing: files of
    ``Accelerator.save_state``, archives with other names, DCP in the folder itself or in folders that are not the Trainer's."""
    return STATE not in names and any(_of_others(folder, name) for name in names)


def _of_others(folder: OpenFolder, name: str) -> bool:
    if _ACCELERATE.fullmatch(name):
        return True
    if _is_dcp(name) or read_name(name).archive:
        return not (_ARCHIVE.fullmatch(name) or _RNG.fullmatch(name))
    status = folder.status(name)
    if status is None or not stat.S_ISDIR(status.st_mode) or _DCP_FOLDER.fullmatch(name):
        return False
    with folder.folder(name) as inner:
        return any(_is_dcp(each) for each in inner.names())


def _is_dcp(name: str) -> bool:
    return name == dcp.METADATA or name.endswith(".distcp")


def judge(entry: CheckpointEntry) -> Judged:
    """Raise Bad unless the Trainer's state, all weights and all shards of their index are complete."""
    with entry.root.folder(entry.name) as folder:
        names = folder.names()
        step = _state_step(folder)
        # The Trainer's own ``last-checkpoint`` has none (hub_strategy="checkpoint").
        if step_in(entry.name) not in (None, step):
            raise torn(f"{STATE} is of step {step}")
        contiguous({int(m[1]) for n in names if (m := _RNG.fullmatch(n))}, "RNG state")
        _check_shards(folder, [n for n in names if _INDEX.fullmatch(n)])
        size = _check_files(folder, names) + _check_folders(folder, names)
        _check_times(folder, names)
    return Judged(step, size, Proof.STRUCTURE)


def _state_step(folder: OpenFolder) -> int:
    if folder.status(STATE) is None:
        raise torn(f"no {STATE}: the save did not finish")
    with folder.file(STATE) as file:
        step = load_json(file.read_small(), STATE).get("global_step")
    if type(step) is not int or step < 0:
        raise torn(f"{STATE} has no global_step")
    return step


def _check_shards(folder: OpenFolder, indexes: list[str]) -> None:
    for index in indexes:
        with folder.file(index) as file:
            shards = load_json(file.read_small(), index).get("weight_map")
        if not isinstance(shards, dict) or not shards:
            raise torn(f"{index} has no weight_map")
        for shard in sorted({str(s) for s in shards.values()}):
            if folder.status(shard) is None:
                raise torn(f"{shard} is missing")
            if not WEIGHTS.fullmatch(shard):
                raise torn(f"{index} names {shard}, which is not a weights file")


def _check_files(folder: OpenFolder, names: list[str]) -> int:
    """Weights also in folders of named adapters, and of modules."""
    size = 0
    for name in names:
        if name.endswith(".safetensors"):
            size += whole_safetensors(folder, name)
        elif _ARCHIVE.fullmatch(name):
            size += whole_archive(folder, name)
        elif (status := folder.status(name)) is not None and stat.S_ISDIR(status.st_mode):
            with folder.folder(name) as inner:
                size += sum(whole_safetensors(inner, each) for each in inner.names() if each.endswith(".safetensors"))
    return size


def _check_folders(folder: OpenFolder, names: list[str]) -> int:
    size = 0
    for name in (n for n in names if _DCP_FOLDER.fullmatch(n)):
        with folder.folder(name) as shards:
            size += dcp.judge_folder(shards)[0]
    if deepspeed.LATEST in names:
        with folder.folder(deepspeed.committed_tag(folder)) as tag:
            size += deepspeed.judge_tag(tag)
            deepspeed.committed_after(folder, tag)
    elif not any(WEIGHTS.fullmatch(n) or n.startswith("pytorch_model_fsdp") for n in names):
        raise Bad(CheckpointVerdict.UNREADABLE, "no weights in it by a name that is known here")
    return size


def _check_times(folder: OpenFolder, names: list[str]) -> None:
    """Weights next to DeepSpeed's own may have been converted from these later."""
    mark, converted = folder.status(STATE), deepspeed.LATEST in names
    for name in names:
        status = folder.status(name) if _SAVED.fullmatch(name) or (WEIGHTS.fullmatch(name) and not converted) else None
        if mark is not None and status is not None:
            written_before(STATE, mark.st_mtime, name, status.st_mtime)
    for name in (n for n in names if _DCP_FOLDER.fullmatch(n)):
        with folder.folder(name) as shards:
            status = shards.status(dcp.METADATA)
        if mark is not None and status is not None:
            written_before(STATE, mark.st_mtime, f"{name}/{dcp.METADATA}", status.st_mtime)
