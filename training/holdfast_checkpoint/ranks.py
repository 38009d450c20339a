"""Rank and world size of this process: torch's where known, else Slurm's. Torch is used only if already imported."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast_checkpoint.base.model import CheckpointError, RanksMissing
from holdfast_checkpoint.base.runs import RunId, whole_number


@dataclass(frozen=True)
class RankPlace:
    """One rank among the ranks that write a checkpoint together."""

    rank: int
    """From 0."""
    world_size: int


def place_of(env: Mapping[str, str]) -> RankPlace:
    """The place of this process.

    Precedence: an initialized ``torch.distributed``, then ``RANK`` and ``WORLD_SIZE`` (torchrun sets them for each worker), then
    ``SLURM_PROCID`` and ``SLURM_NTASKS`` of the step. Under ``srun torchrun`` Slurm's numbers are those of torchrun itself, so they
    are not used where torch has its own. Raises CheckpointError where the sources contradict each other or one is missing."""
    rank, world_size = _number(env, "RANK"), _number(env, "WORLD_SIZE")
    torch = _initialised()
    if torch is not None:
        if rank not in (None, torch.rank) or world_size not in (None, torch.world_size):
            raise CheckpointError(
                f"{_shown(rank, world_size)} in the environment, but torch.distributed is initialised as rank {torch.rank} of "
                f"{torch.world_size}: unset RANK and WORLD_SIZE, or initialise torch.distributed from them"
            )
        return torch
    slurm = RankPlace(_slurm(env, "SLURM_PROCID", 0), _slurm(env, "SLURM_NTASKS", 1))
    if rank is not None and world_size is not None:
        return RankPlace(rank, world_size)
    if rank not in (None, slurm.rank) or world_size not in (None, slurm.world_size):
        raise CheckpointError(
            f"only {_shown(rank, world_size)} is set in the environment, and Slurm says rank {slurm.rank} of {slurm.world_size}: set both "
            "RANK and WORLD_SIZE, or call torch.distributed.init_process_group() before Checkpointer()"
        )
    local_rank, local_ranks = _number(env, "LOCAL_RANK"), _number(env, "LOCAL_WORLD_SIZE")
    if slurm.world_size == 1 and ((local_rank or 0) > 0 or (local_ranks or 1) > 1):
        raise CheckpointError(
            "LOCAL_RANK or LOCAL_WORLD_SIZE says that this node has several ranks, but not which one this is: call "
            "torch.distributed.init_process_group() before Checkpointer(), or give rank= and world_size="
        )
    return slurm


def agree_on_run(place: RankPlace, mine: RunId, *, decided: bool) -> RunId | None:
    """Broadcast the run that rank 0 took to every rank through ``torch.distributed``; None where that is not initialized.

    torchrun counts restarts per node (``TORCHELASTIC_RESTART_COUNT``), so that after one node's failure the ranks of other nodes count
    fewer; of their runs only the job's id counts. ``decided``: rank 0 could decide. A collective: every rank calls it. Raises RanksMissing
    in the other ranks when rank 0 could not."""
    if place.world_size == 1 or _initialised() != place:
        return None
    torch: Any = sys.modules["torch"]
    said = torch.zeros(4, dtype=torch.int64, device=_device(torch))
    if decided and not place.rank:
        said.copy_(torch.tensor([1, *mine.generation], dtype=torch.int64))
    torch.distributed.broadcast(said, src=0)
    known, *generation = (int(number) for number in said.tolist())
    if known:
        return RunId(mine.job_id, (generation[0], generation[1], generation[2]))
    if place.rank:
        raise RanksMissing("rank 0 could not decide where to resume; its own error says why")
    return None


def _initialised() -> RankPlace | None:
    torch: Any = sys.modules.get("torch.distributed")
    ready = getattr(torch, "is_initialized", None)  # torch may be built without it
    if ready is None or not ready():
        return None
    return RankPlace(torch.get_rank(), torch.get_world_size())


def _device(torch: Any) -> Any:
    """Device of a tensor for the group's broadcast."""
    on_cpu = "cpu:" in str(torch.distributed.get_backend_config())
    return torch.device("cpu") if on_cpu else torch.device("cuda", torch.cuda.current_device())


def _number(env: Mapping[str, str], name: str) -> int | None:
    text = env.get(name, "")
    if not text:
        return None
    number = whole_number(text)
    if number is None:
        raise CheckpointError(f"{name}={text[:40]!r} in the environment is no number")
    return number


def _slurm(env: Mapping[str, str], name: str, default: int) -> int:
    number = whole_number(env.get(name))
    return default if number is None else number


def _shown(rank: int | None, world_size: int | None) -> str:
    said = {"RANK": rank, "WORLD_SIZE": world_size}
    return " and ".join(f"{name}={value}" for name, value in said.items() if value is not None)
