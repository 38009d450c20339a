"""Resume a job whose groups have no state: choose a checkpoint, and load it completely or not at all."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast_checkpoint import survey_all, verify
from holdfast_train.errors import TrainError
from holdfast_train.saves.stored import Damaged, StateOrigin, check_files, read_about, read_state
from holdfast_train.tensors.shards import model_state, optimizer_state, plain
from holdfast_train.tensors.statetree import Misfit, StateNode, shapes, split

log = logging.getLogger(__name__)


def candidates(directory: str, resume_from: str | None) -> list[str]:
    """Paths of checkpoints to resume from, the best first: complete ones here, newest first, then the configured one.

    Raises Unreadable: the directory's state is unknown then, and starting from zero would lose work."""
    here = [c.path for c in survey_all(directory, digests=False).candidates if c.complete]
    if not resume_from or os.path.dirname(os.path.abspath(resume_from)) == os.path.abspath(directory):
        return here
    try:
        found = verify(resume_from)
    except FileNotFoundError:
        log.warning("event=resume_from_missing path=%s", resume_from)
        return here
    if not found.complete:
        log.warning("event=resume_from_passed_over path=%s reason=%r", resume_from, found.reason)
        return here
    return [*here, found.path]


class CheckpointReader:
    """Reader of one checkpoint into the parts of a training state."""

    def __init__(self, path: str, parts: Mapping[str, Any], ours: StateOrigin, rank: int) -> None:
        """Raises Damaged when it is not as written, TrainError when it belongs to another job."""
        self._path, self._parts, self._rank = Path(path), parts, rank
        check_files(self._path, rank)
        self.about, self._tree = read_about(self._path, rank)
        self.about.check(ours, self._path.name)
        self._fit()

    def read(self) -> dict[str, Any]:
        """Raises Damaged."""
        read: dict[str, Any] = read_state(self._path, self._rank, self._tree)
        return read

    def _fit(self) -> None:
        """Raise TrainError before reading anything that could not be loaded completely."""
        try:
            mine, _ = split(plain({name: part.state_dict() for name, part in self._parts.items()}))
            names = sorted(_keys(self._tree))
            if names != sorted(self._parts):
                raise self._misfit(f"it has the parts {names}, and this job has {sorted(self._parts)}")
            there, here = shapes(self._tree, "model"), shapes(mine, "model")
            groups = [_groups(tree) for tree in (self._tree, mine)]
        except (Misfit, KeyError, TypeError) as error:
            raise Damaged(f"its state is invalid: {error}") from error
        for name in sorted({*there, *here}):
            if there.get(name) != here.get(name):
                raise self._misfit(f"{name} is {_shape(there.get(name))} there and {_shape(here.get(name))} here")
        if groups[0] != groups[1]:
            raise self._misfit("its optimizer has other groups of parameters")

    def _misfit(self, why: str) -> TrainError:
        return TrainError(
            f"checkpoint {self._path.name} does not fit this model: {why}; nothing was taken from it."
            " Use the model that it was made with, or another directory"
        )


def take_over(parts: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Load into the model, the optimizer and further state, each rank its own parts."""
    whole = {
        **state,
        "model": model_state(parts["model"].state_dict(), state["model"]),
        "optimizer": optimizer_state(parts["optimizer"], state["optimizer"]),
    }
    for name, part in parts.items():
        part.load_state_dict(whole[name])


def _keys(tree: StateNode) -> list[str]:
    return [str(key) for key, _node in tree["d"]]


def _groups(tree: StateNode) -> list[int]:
    """Number of parameters in each group of the optimizer."""
    optimizer = dict(dict(tree["d"])["optimizer"]["d"])
    return [len(dict(group["d"])["params"]["l"]) for group in optimizer["param_groups"]["l"]]


def _shape(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else "×".join(str(n) for n in shape) or "a single number"
