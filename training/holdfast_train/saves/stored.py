"""One checkpoint of an elastic job on disk: each rank's tensors as DCP writes them, and further state as JSON.

``step-0000500-jROOM-r57.0.0/rank-00000/``: ``.metadata``, ``__0_0.distcp`` and ``state.json``; next to the ranks' folders is
``MANIFEST.json``, which the registry (:mod:`holdfast_checkpoint`) uses. Each rank saves and reads its own parts without communication:
DCP's ranks exchange pickles, and one that dies would block the save of all. Digests are compared before anything is read, because
DCP's index is a pickle, too."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.staging import AsyncStager
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save

from holdfast_checkpoint.base.confined import Bad
from holdfast_checkpoint.base.manifest import MANIFEST, digest_fd, parse_manifest, rank_folder
from holdfast_checkpoint.layouts.archives import load_json
from holdfast_train.errors import TrainError
from holdfast_train.tensors.statetree import Misfit, StateNode, Tensors, blank, join, split

_STATE = "state.json"


class Damaged(Exception):
    """The checkpoint cannot be used; an older one may. One line."""


@dataclass(frozen=True, slots=True)
class StateOrigin:
    """Settings that a state belongs to. With another seed or batch, a resumed run would train other samples at each step."""

    step: int
    seed: int
    samples: int
    micro_samples: int
    ranks: int
    """Ranks of one group."""

    def check(self, ours: StateOrigin, name: str) -> None:
        """Raise TrainError where a checkpoint's settings differ from ours."""
        for what, there, here in (
            ("global batch", self.samples, ours.samples),
            ("micro-batch", self.micro_samples, ours.micro_samples),
            ("seed", self.seed, ours.seed),
            ("number of ranks in a group", self.ranks, ours.ranks),
        ):
            if there != here:
                raise TrainError(
                    f"checkpoint {name} was made with a {what} of {there}, and this job has {here}:"
                    " change it back, or give this job another directory"
                )


class Buffers(AsyncStager):
    """DCP stager with reused memory for copies of states. New memory for each would double the time that the loop waits
    (the kernel provides it page by page), and the memory is needed during a save anyway."""

    _synchronize_after_execute = False

    def __init__(self) -> None:
        self._kept: Tensors = {}

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Copy all tensors into memory that the next call reuses."""
        before, self._kept = self._kept, {}
        for name, tensor in state_dict.items():
            kept = before.get(name)
            if kept is None or kept.shape != tensor.shape or kept.dtype != tensor.dtype:
                kept = torch.empty(tensor.shape, dtype=tensor.dtype)
            self._kept[name] = kept.copy_(tensor)
        return self._kept

    def synchronize_staging(self) -> None:
        """No-op: there is nothing to wait for."""

    def close(self) -> None:
        """No-op: DCP does not own this stager."""


class Staged:
    """A copy of one rank's state at one step, to be written to disk."""

    def __init__(self, folder: Path, state: Mapping[str, Any], about: StateOrigin, rank: int, buffers: Buffers) -> None:
        """Copy, after the previous save has ended; the state may change once this returns. Raises TypeError for what cannot be saved."""
        tree, tensors = split(dict(state))
        self._said = json.dumps({"v": 1, **asdict(about), "state": tree}, separators=(",", ":")).encode()
        self._own = folder / rank_folder(rank)
        writer = FileSystemWriter(self._own, per_thread_copy_ahead=0)  # no pre-copy: the state is copied anyway
        self._writing: Any = async_save(tensors, storage_writer=writer, async_stager=buffers, no_dist=True)

    def finish(self) -> list[str]:
        """Wait until this rank's files are written. Returns their names below the folder. Raises OSError, TrainError."""
        try:
            self._writing.result()
        except CheckpointException as error:
            raise TrainError(_cause(error)) from error
        (self._own / _STATE).write_bytes(self._said)
        return [f"{self._own.name}/{name}" for name in os.listdir(self._own)]


def check_files(folder: Path, rank: int) -> None:
    """Compare this rank's files with the manifest, every byte. Raises Damaged."""
    try:
        manifest = parse_manifest(load_json((folder / MANIFEST).read_bytes(), MANIFEST))
        for name, entry in manifest.files.items():
            if name.startswith(f"{rank_folder(rank)}/"):
                fd = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    if digest_fd(fd) != entry:
                        raise Damaged(f"the content of {name} is not what the manifest says")
                finally:
                    os.close(fd)
    except (OSError, ValueError, Bad) as error:
        raise Damaged(str(error)[:200]) from error


def read_about(folder: Path, rank: int) -> tuple[StateOrigin, StateNode]:
    """Raises Damaged if it is no checkpoint of an elastic job, or has nothing of this rank and of rank 0."""
    for name in (rank_folder(rank), rank_folder(0)):  # a group of another size: rank 0's files have it
        try:
            said = json.loads((folder / name / _STATE).read_bytes())
            numbers = [said[field] for field in StateOrigin.__slots__]
            if said["v"] != 1 or any(type(number) is not int for number in numbers):
                raise ValueError("fields")
            return StateOrigin(*numbers), said["state"]
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise Damaged(f"{_STATE} is not of an elastic job: {str(error)[:100]}") from error
    raise Damaged(f"no {_STATE}: not a checkpoint of an elastic job")


def read_state(folder: Path, rank: int, tree: StateNode) -> Any:
    """Read this rank's state into new memory. Raises Damaged."""
    try:
        tensors = blank(tree)
        load(tensors, storage_reader=FileSystemReader(folder / rank_folder(rank)), no_dist=True)
        return join(tree, tensors)
    except (CheckpointException, OSError, RuntimeError, KeyError, Misfit) as error:
        raise Damaged(_cause(error)) from error


def _cause(error: BaseException) -> str:
    """The first line of the error that DCP wrapped."""
    failures = getattr(error, "failures", None)
    return _line(next(iter(failures.values()))[0]) if failures else _line(error)


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
