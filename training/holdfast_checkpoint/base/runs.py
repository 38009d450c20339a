"""Identity and order of runs of a job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_JOB = re.compile(r"[A-Za-z0-9_]{1,64}")
_TEXT = re.compile(r"j([A-Za-z0-9_]{1,64})-r(\d{1,9})\.(\d{1,9})\.(\d{1,9})")
_SPECIAL_STEPS = 0xFFFFFFF0
"""Slurm numbers its own steps (batch, extern, interactive) from here up; they are no restarts of the training."""


@dataclass(frozen=True)
class RunId:
    """A run. Runs of one job are ordered by ``generation``; runs of different jobs by who started last (the fence)."""

    job_id: str
    generation: tuple[int, int, int] = (0, 0, 0)
    """(Slurm's restart count, srun step within it, restart within the step). Each part only ever grows."""

    @property
    def restarts(self) -> int:
        """``SLURM_RESTART_COUNT`` of the run, 0 in the first."""
        return self.generation[0]

    @property
    def again(self) -> bool:
        """Whether Slurm, or a counter in ``HOLDFAST_ATTEMPT``, has started it before."""
        restarts, _, attempt = self.generation
        return restarts > 0 or attempt > 0

    def __str__(self) -> str:
        restarts, step, attempt = self.generation
        return f"j{self.job_id}-r{restarts}.{step}.{attempt}"

    def next_attempt(self) -> RunId:
        """The same run started once more by a restart that Slurm does not count."""
        restarts, step, attempt = self.generation
        return RunId(self.job_id, (restarts, step, attempt + 1))


def parse_run(text: str) -> RunId:
    """The inverse of ``str(run)``. Raises ValueError."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"not a run id: {text[:80]!r}")
    return RunId(match[1], (int(match[2]), int(match[3]), int(match[4])))


def run_from_env(env: Mapping[str, str]) -> RunId:
    """The run that this process belongs to, from Slurm's environment.

    ``SLURM_RESTART_COUNT`` is unset in the first run. ``HOLDFAST_ATTEMPT`` or ``TORCHELASTIC_RESTART_COUNT`` counts
    restarts that Slurm does not see. Outside Slurm the job is ``local``. A value that is not a number counts as 0."""
    job_id = env.get("SLURM_JOB_ID", "") or "local"
    if not _JOB.fullmatch(job_id):
        raise ValueError(f"SLURM_JOB_ID is not a job id: {job_id[:80]!r}")
    step = _number(env.get("SLURM_STEP_ID"))
    attempt = _number(env.get("HOLDFAST_ATTEMPT") or env.get("TORCHELASTIC_RESTART_COUNT"))
    return RunId(job_id, (_number(env.get("SLURM_RESTART_COUNT")), 0 if step >= _SPECIAL_STEPS else step, attempt))


def whole_number(text: str | None) -> int | None:
    """A number as Slurm and torchrun write it into the environment; None for anything else."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 11 else None


def _number(text: str | None) -> int:
    return whole_number(text) or 0
