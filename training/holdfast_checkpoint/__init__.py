"""Checkpoints of training jobs: save atomically, find the newest complete one, ensure a single writer.

Standard library only, and no daemon needed: jobs import it, and ``python -m holdfast_checkpoint`` works anywhere::

    checkpoints = holdfast_checkpoint.Checkpointer("/scratch/me/run7")
    start = checkpoints.resume()                      # None: from the start
    for step in range((start.step or 0) + 1 if start else 1, 1001):
        ...
        checkpoints.progress(step)
        if step % 100 == 0:
            with checkpoints.save(step) as folder:    # every rank, its own folder
                (folder / "state.json").write_text(...)
"""

from __future__ import annotations

from holdfast_checkpoint.base.confined import Limits
from holdfast_checkpoint.base.model import (
    Checkpoint,
    CheckpointError,
    FencedOff,
    Layout,
    Proof,
    RanksMissing,
    Survey,
    TakenOver,
    Unreadable,
)
from holdfast_checkpoint.base.model import CheckpointVerdict as Verdict
from holdfast_checkpoint.base.runs import RunId, run_from_env
from holdfast_checkpoint.checkpointer import Checkpointer
from holdfast_checkpoint.judge import latest, survey, survey_all, verify

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "Checkpointer",
    "FencedOff",
    "Layout",
    "Limits",
    "Proof",
    "RanksMissing",
    "RunId",
    "Survey",
    "TakenOver",
    "Unreadable",
    "Verdict",
    "latest",
    "run_from_env",
    "survey",
    "survey_all",
    "verify",
]
