"""Place of a launcher: its job, its group, and its node among the group's nodes. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.model.elastic_jobs.elastic import start_name
from holdfast.model.errors import HoldfastError


class WrongUse(HoldfastError):
    """The launcher was started in a way that cannot work; nothing has been started."""


@dataclass(frozen=True, slots=True)
class LauncherPlace:
    """One launcher's part of one job."""

    job_id: int | None = None
    """Slurm's id of this job or array element; None: not inside a job."""
    restarts: int = 0
    """SLURM_RESTART_COUNT."""
    group: int | None = None
    """Index of the group; None: neither an array element nor set by HOLDFAST_GROUP."""
    in_array: bool = False
    """Only elements of job arrays can be groups of an elastic job that Holdfast manages."""
    node_rank: int = 0
    nodes: int = 1
    """Nodes of the group's step; one launcher runs on each."""
    head: str | None = None
    """Name of the step's first node, where the group's ranks meet; None for a group of one node."""
    step: int = 0

    def start(self, attempt: int, outside: str) -> str:
        """Name of this start of the group, with the number of in-place attempts. ``outside``: used where there is no job."""
        if self.job_id is None:
            return outside + (f".{attempt}" if attempt else "")
        return start_name(self.job_id, self.restarts, attempt)


def place_from_env(env: Mapping[str, str]) -> LauncherPlace:
    """The place from Slurm's environment variables. Raises WrongUse when there is more than one launcher per node."""
    nodes, tasks = _number(env, "SLURM_STEP_NUM_NODES") or 1, _number(env, "SLURM_STEP_NUM_TASKS") or 1
    if tasks > nodes:
        raise WrongUse(
            f"srun started {tasks} launchers on {nodes} node{'s' * (nodes > 1)}: start one on each with"
            " `srun --ntasks-per-node=1 holdfast run --nproc N`"
        )
    element = _number(env, "SLURM_ARRAY_TASK_ID")
    told = _number(env, "HOLDFAST_GROUP")
    job_id = _number(env, "SLURM_JOB_ID")
    return LauncherPlace(
        job_id=job_id,
        restarts=_number(env, "SLURM_RESTART_COUNT") or 0,
        group=element if element is not None else told,
        in_array=job_id is not None and element is not None,
        node_rank=(_number(env, "SLURM_NODEID") or 0) if nodes > 1 else 0,
        nodes=nodes,
        head=first_host(env.get("SLURM_STEP_NODELIST", "")) if nodes > 1 else None,
        step=_number(env, "SLURM_STEP_ID") or 0,
    )


def first_host(node_list: str) -> str | None:
    """The first name of a Slurm node list such as ``rack[2-3]n[01-16],login``; None for an empty one."""
    first = re.match(r"(?:[^,\[\]]|\[[^\]]*\])+", node_list)
    return re.sub(r"\[(\d+)[^\]]*\]", r"\1", first.group()) if first else None


def _number(env: Mapping[str, str], name: str) -> int | None:
    text = env.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 11 else None
