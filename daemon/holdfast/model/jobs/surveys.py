"""Survey of a job's checkpoint directory by an agent. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.model.jobs.said import WHOLE_MAX

SURVEYED = "checkpoint.surveyed"
"""Kind of the statement: the agent's own, which no job can make."""
_MOST = 8
"""Checkpoints of one survey that are kept."""
_AGE_MAX_S = 10 * 365 * 86_400.0
"""It is not known when something was written longer ago, or further ahead, than this."""


@dataclass(frozen=True, slots=True)
class Written:
    """A complete checkpoint."""

    step: int | None
    """None: its name does not say."""
    age_s: float | None
    """Age at the time of the survey, by the clocks of node and file server; None: not known."""


@dataclass(frozen=True, slots=True)
class CheckpointSurvey:
    """The newest complete checkpoints of a directory, read with the rights of the job's user."""

    directory: str
    restarts: int
    """The job's run at that time."""
    known: bool
    """All that ranks as newer was read and is not complete. False: ``complete`` is what was found all the same."""
    complete: tuple[Written, ...] = ()
    """Newest first, few."""
    layout: str = ""
    problem: str = ""
    """Reason why not all is known, for people."""


def dump_written(complete: Sequence[Written]) -> str:
    """``60:3.2 40:43.1``, newest first: details of a statement are flat."""
    return " ".join(f"{'-' if w.step is None else w.step}:{'-' if w.age_s is None else w.age_s}" for w in complete)


def survey_of(path: str, restarts: int, detail: Mapping[str, Any]) -> CheckpointSurvey:
    """The survey in a statement."""
    complete = detail.get("complete")
    words = complete.split()[:_MOST] if isinstance(complete, str) else []
    return CheckpointSurvey(
        directory=path,
        restarts=restarts,
        known=detail.get("known") is True,
        complete=tuple(_written(word) for word in words),
        layout=_short(detail.get("layout"), 40),
        problem=_short(detail.get("problem"), 200),
    )


def _written(word: str) -> Written:
    step, _, age = word.partition(":")
    try:
        age_s = float(age)
    except ValueError:
        return Written(_step(step), None)
    return Written(_step(step), age_s if abs(age_s) <= _AGE_MAX_S else None)


def _step(text: str) -> int | None:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None
    return number if number is not None and number <= WHOLE_MAX else None


def _short(value: object, most: int) -> str:
    return value[:most] if isinstance(value, str) else ""
