"""Data classes of checkpoints: verdicts, layouts, surveys. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from holdfast_checkpoint.base.runs import RunId


class CheckpointError(Exception):
    """Base class of every expected error of this library; its text is one line that says what to do."""


class FencedOff(CheckpointError):
    """A newer run of the job owns the directory: this process must stop, it can no longer commit anything."""


class TakenOver(FencedOff):
    """Another job writes into the directory: this one cannot continue."""


class Unreadable(CheckpointError):
    """The directory cannot be read now (I/O error, no permission, deadline): its state is unknown."""


class RanksMissing(CheckpointError):
    """Not every rank handed in its files in time; nothing was committed."""


class _Text(str, Enum):
    """enum.StrEnum, which Python has from 3.11 on."""

    __str__ = str.__str__
    __format__ = str.__format__  # type: ignore[assignment]


class CheckpointVerdict(_Text):
    """Verdict about one candidate. Only ``COMPLETE`` may be resumed from."""

    COMPLETE = "complete"
    TORN = "torn"
    """The save did not finish, or its content is damaged."""
    REFUSED = "refused"
    """Something that no checkpoint contains: a link, a FIFO, another user's file, an unsafe name."""
    FENCED = "fenced"
    """Complete, but written by a run after a newer run had resumed from an earlier step."""
    UNREADABLE = "unreadable"
    """It could not be read completely now (I/O error, no permission, deadline)."""


class Layout(_Text):
    """Known checkpoint layouts; docs/checkpoints.md lists what each must contain."""

    HOLDFAST = "holdfast"
    DCP = "dcp"
    LIGHTNING = "lightning"
    HUGGINGFACE = "huggingface"
    DEEPSPEED = "deepspeed"
    NEMO = "nemo"
    TORCH = "torch"
    """Plain ``torch.save``: one file."""


class Proof(_Text):
    """Level of proof of a COMPLETE verdict."""

    DIGESTS = "digests"
    """Every byte was read and its SHA-256 agrees with the manifest."""
    SIZES = "sizes"
    """Every listed file exists with its listed size."""
    STRUCTURE = "structure"
    """Every file that the layout requires exists and ends as its format must; sizes are not recorded anywhere."""


def weakest(proofs: Iterable[Proof]) -> Proof:
    """The lowest level of several."""
    order = list(Proof)
    return max(proofs, key=order.index)


@dataclass(frozen=True)
class Checkpoint:
    """One candidate in a checkpoint directory, with its verdict."""

    name: str
    """Name in the directory, with control characters escaped."""
    path: str
    """Directory joined with the name; the path that a job resumes from."""
    layout: Layout
    verdict: CheckpointVerdict
    reason: str = ""
    """One line; empty when COMPLETE."""
    step: int | None = None
    """None when it cannot be known without unpickling."""
    size_bytes: int = 0
    mtime: datetime | None = None
    """When it was last written (UTC, the file server's clock); breaks ties only."""
    proof: Proof | None = None
    run: RunId | None = None
    """The run that wrote it; None where the layout does not say."""

    @property
    def complete(self) -> bool:
        return self.verdict is CheckpointVerdict.COMPLETE


@dataclass(frozen=True)
class Survey:
    """All candidates in one checkpoint directory, newest first."""

    directory: str
    candidates: tuple[Checkpoint, ...] = ()
    warnings: tuple[str, ...] = field(default=())
    """What was ignored and why (a fence file that does not parse), one line each."""
    strays: tuple[str, ...] = ()
    """Paths below the directory that may be newer than the latest, or checkpoints where none is complete, and cannot be verified."""
    others: tuple[str, ...] = ()
    """Newer files of unknown kind: it is not known whether they are checkpoints."""

    @property
    def latest(self) -> Checkpoint | None:
        """The newest complete candidate, None when there is none."""
        return next((c for c in self.candidates if c.complete), None)

    @property
    def passed_over(self) -> tuple[Checkpoint, ...]:
        """Candidates that are sorted before the latest and are not complete; all of them when none is."""
        found: list[Checkpoint] = []
        for candidate in self.candidates:
            if candidate.complete:
                break
            found.append(candidate)
        return tuple(found)

    @property
    def unreadable(self) -> tuple[Checkpoint, ...]:
        """Candidates of unknown state."""
        return tuple(c for c in self.candidates if c.verdict is CheckpointVerdict.UNREADABLE)
