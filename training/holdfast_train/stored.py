"""One checkpoint of an elastic job on the disk: tensors as DCP writes them, below ``data/``, and what else there is, as JSON of each rank.

``step-0000500-jROOM-r57.0.0/``: ``data/.metadata`` and ``data/__RANK_0.distcp``, ``rank-00000/state.json``, and ``MANIFEST.json``, which
the registry (:mod:`holdfast_checkpoint`) goes by. Digests are compared before anything is read: DCP's own index is a pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save

from holdfast_checkpoint.layouts.archives import load_json
from holdfast_checkpoint.manifest import MANIFEST, Manifest, digest_fd, parse_manifest, rank_folder
from holdfast_train.errors import TrainError
from holdfast_train.statetree import Misfit, Node, Tensors, blank, join, split

_DATA = "data"
_STATE = "state.json"


class Damaged(Exception):
    """The checkpoint cannot be used; an older one may. One line."""


@dataclass(frozen=True, slots=True)
class About:
    """What a state goes with. Another seed or batch would train other samples at each step than the first run did."""

    step: int
    seed: int
    samples: int
    micro_samples: int
    ranks: int
    """Of one group."""

    def check(self, ours: About, name: str) -> None:
        """Raises TrainError where this, of a checkpoint, is not ours."""
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


class Staged:
    """A copy of the state at one step, on its way to the disk."""

    def __init__(self, folder: Path, state: Mapping[str, Any], about: About, rank: int, group: Any) -> None:
        """Copies; the state may change once this returns. Raises TypeError for what cannot be saved."""
        tree, tensors = split(dict(state), rank, about.ranks)
        self._said = json.dumps({"v": 1, **asdict(about), "state": tree}, separators=(",", ":")).encode()
        self._folder, self._rank = folder, rank
        writer = FileSystemWriter(folder / _DATA)
        self._writing: Any = async_save(tensors, storage_writer=writer, process_group=group, no_dist=group is None)

    def finish(self) -> list[str]:
        """Waits until this rank's files are written; their names below the folder. Raises OSError, TrainError."""
        try:
            self._writing.result()
        except CheckpointException as error:
            raise TrainError(_cause(error)) from error
        own = self._folder / rank_folder(self._rank)
        own.mkdir(parents=True, exist_ok=True)
        (own / _STATE).write_bytes(self._said)
        return _names(self._folder, self._rank)


def _names(folder: Path, rank: int) -> list[str]:
    """Files that this rank wrote; rank 0 also wrote DCP's index."""
    data = [n for n in os.listdir(folder / _DATA) if n.startswith(f"__{rank}_") or (n == ".metadata" and rank == 0)]
    return [f"{rank_folder(rank)}/{_STATE}", *(f"{_DATA}/{name}" for name in data)]


def check_files(folder: Path, rank: int) -> Manifest:
    """Compares this rank's files, and what all ranks read, with the manifest, every byte. Raises Damaged."""
    try:
        manifest = parse_manifest(load_json((folder / MANIFEST).read_bytes(), MANIFEST))
        mine = (f"{rank_folder(rank)}/", f"{_DATA}/__{rank}_", f"{_DATA}/.metadata")
        for name, entry in manifest.files.items():
            if name.startswith(mine):
                fd = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    if digest_fd(fd) != entry:
                        raise Damaged(f"the content of {name} is not what the manifest says")
                finally:
                    os.close(fd)
    except (OSError, ValueError) as error:
        raise Damaged(str(error)[:200]) from error
    return manifest


def read_about(folder: Path, rank: int) -> tuple[About, Node]:
    """Raises Damaged for what is no checkpoint of an elastic job, or has nothing of this rank and of rank 0."""
    for name in (rank_folder(rank), rank_folder(0)):  # a group of another size than ours: rank 0 says which
        try:
            said = json.loads((folder / name / _STATE).read_bytes())
            numbers = [said[field] for field in About.__slots__]
            if said["v"] != 1 or any(type(number) is not int for number in numbers):
                raise ValueError("fields")
            return About(*numbers), said["state"]
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise Damaged(f"{_STATE} is not of an elastic job: {str(error)[:100]}") from error
    raise Damaged(f"no {_STATE}: not a checkpoint of an elastic job")


def read_state(folder: Path, tree: Node, like: Callable[[str], torch.Tensor | None], group: Any) -> Any:
    """The state, in memory of its own. All ranks of a group together. Raises Damaged, Misfit."""
    tensors: Tensors = blank(tree, like)
    try:
        reader = FileSystemReader(folder / _DATA)
        load(tensors, storage_reader=reader, process_group=group, no_dist=group is None)
        return join(tree, tensors)
    except (CheckpointException, OSError, RuntimeError, KeyError) as error:
        raise Damaged(_cause(error)) from error


def own_group(ranks: int) -> Any:
    """A process group for saves alone, which go on beside the training; None for a single rank."""
    return dist.new_group(backend="gloo") if ranks > 1 else None


def _cause(error: BaseException) -> str:
    """The first line of what DCP wrapped: which rank, and why."""
    failures = getattr(error, "failures", None)
    if failures:
        rank, (inner, _trace) = next(iter(failures.items()))
        return f"rank {rank}: {_line(inner)}"
    return _line(error)


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


__all__ = ["About", "Damaged", "Misfit", "Staged", "check_files", "own_group", "read_about", "read_state"]
