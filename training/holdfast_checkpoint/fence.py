"""The fence of a checkpoint directory: which run may write, and which steps of earlier runs still count.

``.holdfast-fence/00000007.json`` is one of a sequence of small files, each created once with link(2) and never changed. A run
adds its own before it continues, with the step that it resumes from. From then on

- an earlier run's commit is refused (:func:`fenced_off`), which is checked right before its rename;
- what an earlier run wrote beyond that step does not count (:func:`last_valid_step`), even when its rename came later.

The second rule closes the gap that the first leaves between check and rename: a node that was cut off may continue to train
and commit, but no run resumes from it. Neither rule needs a clock, a lock or the controller.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast_checkpoint import durable
from holdfast_checkpoint.base.confined import Bad, OpenFolder
from holdfast_checkpoint.base.manifest import dump_json, parse_folder_name
from holdfast_checkpoint.base.model import CheckpointError, CheckpointVerdict, FencedOff
from holdfast_checkpoint.base.runs import RunId, parse_run
from holdfast_checkpoint.layouts.archives import load_json

FOLDER = ".holdfast-fence"
_NAME = re.compile(r"(\d{8})\.json")
_TRIES = 64


@dataclass(frozen=True)
class Fence:
    """One run's start."""

    sequence: int
    run: RunId
    resumed_step: int
    """0 when it started from zero."""
    resumed_name: str = ""
    """Folder that it resumed from, empty when it started from zero; the other ranks learn rank 0's choice from it."""
    member: str = ""
    """Member of an elastic job that took it (:mod:`holdfast_checkpoint.lease`); empty for any other job."""


def effective(fences: Sequence[Fence]) -> tuple[Fence, ...]:
    """The fences that count, in order, without those of a run that came after a newer run of the same job."""
    newest: dict[str, tuple[int, int, int]] = {}
    kept: list[Fence] = []
    for fence in sorted(fences, key=lambda f: f.sequence):
        known = newest.get(fence.run.job_id)
        if known is None or fence.run.generation > known:
            newest[fence.run.job_id] = fence.run.generation
            kept.append(fence)
    return tuple(kept)


def fenced_off(fences: Sequence[Fence], run: RunId) -> Fence | None:
    """The fence that takes the directory away from the run; None while the run may write.

    Within one job the higher generation wins; between different jobs the one that started last."""
    row = effective(fences)
    own = next((f.sequence for f in row if f.run == run), None)
    for fence in row:
        if fence.run.job_id == run.job_id:
            if fence.run.generation > run.generation:
                return fence
        elif own is not None and fence.sequence > own:
            return fence
    return None


def last_valid_step(fences: Sequence[Fence], run: RunId) -> int | None:
    """The last step of the run that still counts; None: all of them do.

    A run that never set a fence (a directory that was copied here) counts as older than every fence."""
    row = effective(fences)
    own = next((f.sequence for f in row if f.run == run), -1)
    return min((f.resumed_step for f in row if f.sequence > own), default=None)


def read_fences(root: OpenFolder) -> tuple[tuple[Fence, ...], tuple[str, ...]]:
    """(fences, one line for each file that does not count). Raises Bad when they cannot be read."""
    if root.status(FOLDER) is None:
        return (), ()
    fences: list[Fence] = []
    warnings: list[str] = []
    with root.folder(FOLDER) as folder:
        for name in folder.names():
            match = _NAME.fullmatch(name)
            if match is None:
                continue
            try:
                fences.append(_read_one(folder, name, int(match[1])))
            except Bad as error:
                if error.verdict is CheckpointVerdict.UNREADABLE:
                    raise
                warnings.append(f"{FOLDER}/{name} left out: {error.reason}")
            except ValueError as error:
                warnings.append(f"{FOLDER}/{name} left out: {error}")
    return tuple(fences), tuple(warnings)


def add_fence(
    directory: str,
    root: OpenFolder,
    run: RunId,
    *,
    resumed_step: int,
    resumed_name: str,
    member: str = "",
    refuse: Callable[[Sequence[Fence]], None] = lambda fences: None,
) -> Fence:
    """Take the directory for the run. Raises FencedOff when a newer run has it, or this same run had it already.

    ``refuse`` may raise for further reasons; it gets the fences before the new one."""
    for _ in range(_TRIES):
        fences, _ignored = read_fences(root)
        refuse(fences)
        newer = fenced_off(fences, run)
        if newer is not None:
            raise FencedOff(f"{newer.run} has taken over this directory; {run} must stop")
        if any(f.run == run for f in fences):
            raise FencedOff(f"{run} was started here before; give every restart a different HOLDFAST_ATTEMPT")
        fence = Fence(_next_sequence(root), run, resumed_step, resumed_name, member)
        if _create(directory, fence):
            return fence
    raise CheckpointError(f"no fence could be set in {_TRIES} tries: too many runs start in this directory at a time")


def _next_sequence(root: OpenFolder) -> int:
    if root.status(FOLDER) is None:
        return 1
    with root.folder(FOLDER) as folder:
        return max((int(m[1]) for n in folder.names() if (m := _NAME.fullmatch(n))), default=0) + 1


def _create(directory: str, fence: Fence) -> bool:
    folder = os.path.join(directory, FOLDER)
    os.makedirs(folder, exist_ok=True)
    durable.sync_folder(directory)
    said = {"v": 1, "run": str(fence.run), "resumed_step": fence.resumed_step, "resumed_name": fence.resumed_name}
    data = dump_json({**said, "member": fence.member} if fence.member else said)
    path = os.path.join(folder, f"{fence.sequence:08d}.json")
    return durable.create(path, data, os.path.join(folder, f".{fence.run}.{os.getpid()}.tmp"))


def _read_one(folder: OpenFolder, name: str, sequence: int) -> Fence:
    with folder.file(name) as file:
        value = load_json(file.read_small(), name)
    step, resumed, member = value.get("resumed_step"), value.get("resumed_name"), value.get("member", "")
    if (
        value.get("v") != 1
        or type(step) is not int
        or step < 0
        or not isinstance(resumed, str)
        or not isinstance(member, str)
    ):
        raise ValueError("not a fence of a known version")
    if resumed and parse_folder_name(resumed) is None:
        raise ValueError("resumed_name is no checkpoint's")
    return Fence(sequence, parse_run(str(value.get("run"))), step, resumed, member)
