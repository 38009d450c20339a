"""What the doctor says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class AdviceLevel(StrEnum):
    ERROR = "error"
    """Holdfast cannot do its work, or part of it."""
    WARNING = "warning"
    """Recovery works, but slower, or loses something."""
    HINT = "hint"
    """Worth knowing; a choice that may well be meant."""


_RANK = {level: rank for rank, level in enumerate(AdviceLevel)}


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing that would prevent or delay recovery."""

    id: str
    """Stable name, ``room.subject``; ``docs/doctor.md`` has a line for each."""
    level: AdviceLevel
    what: str
    """What was found, with its value."""
    why: str
    """What Holdfast loses by it."""
    fix_line: str
    """The line that fixes it: for slurm.conf, the shell, or Holdfast's configuration, which it names."""


def by_urgency(advice: Iterable[Advice]) -> list[Advice]:
    """Errors first; inside a level in the order given."""
    return sorted(advice, key=lambda one: _RANK[one.level])


def exit_code(advice: Iterable[Advice]) -> int:
    """1 if anything is an error, else 0."""
    return int(any(one.level is AdviceLevel.ERROR for one in advice))
