"""The nouns of checkpoints: verdicts, layouts, what was found. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from holdfast_checkpoint.runs import RunId


class CheckpointError(Exception):
    """Base of every expected error of this library; its text is one line that says what to do."""


class FencedOff(CheckpointError):
    """A newer run of the job owns the directory: this process must stop, it can no longer commit anything."""


class TakenOver(FencedOff):
    """Another job writes into the directory: there is no coming back for this one."""


class Unreadable(CheckpointError):
    """Nothing can be said about the directory now (I/O error, no permission, deadline): neither good nor bad news."""


class RanksMissing(CheckpointError):
    """Not every rank handed in its files in time; nothing was committed."""


class _Text(str, Enum):
    """enum.StrEnum, which Python has from 3.11 on."""

    __str__ = str.__str__
    __format__ = str.__format__  # type: ignore[assignment]


class Verdict(_Text):
    """What was found out about one candidate. Only ``COMPLETE`` may be resumed from."""

    COMPLETE = "complete"
    TORN = "torn"
    """The save did not finish, or its content is damaged."""
    REFUSED = "refused"
    """Something that no checkpoint contains: a link, a FIFO, another user's file, a trick in a name."""
    FENCED = "fenced"
    """Complete, but written by a run after a newer run had gone on from an earlier step."""
    UNREADABLE = "unreadable"
    """It could not be read to the end now (I/O error, no permission, deadline)."""


class Layout(_Text):
    """Known ways to lay out a checkpoint; docs/checkpoints.md says what each must contain."""

    HOLDFAST = "holdfast"
    DCP = "dcp"
    LIGHTNING = "lightning"
    HUGGINGFACE = "huggingface"
    DEEPSPEED = "deepspeed"
    NEMO = "nemo"
    TORCH = "torch"
    """Plain ``torch.save``: one file."""


class Proof(_Text):
    """How far a COMPLETE verdict was proved."""

    DIGESTS = "digests"
    """Every byte was read and its SHA-256 agrees with the manifest."""
    SIZES = "sizes"
    """Every file that is listed is there in its listed size."""
    STRUCTURE = "structure"
    """Every file that the layout calls for is there and ends as its format must; sizes are not recorded anywhere."""


def weakest(proofs: Iterable[Proof]) -> Proof:
    """What is proved of all of them."""
    order = list(Proof)
    return max(proofs, key=order.index)


@dataclass(frozen=True)
class Checkpoint:
    """One candidate in a checkpoint directory, and what was found out about it."""

    name: str
    """Name in the directory, with control characters escaped."""
    path: str
    """Directory joined with the name; what a job resumes from."""
    layout: Layout
    verdict: Verdict
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
        return self.verdict is Verdict.COMPLETE


@dataclass(frozen=True)
class Survey:
    """Everything that was found in one checkpoint directory, newest first."""

    directory: str
    candidates: tuple[Checkpoint, ...] = ()
    warnings: tuple[str, ...] = field(default=())
    """What was left out and why (a fence file that does not parse), one line each."""
    strays: tuple[str, ...] = ()
    """Paths below the directory that may be newer than the latest, or checkpoints where none is complete, and cannot be judged."""
    others: tuple[str, ...] = ()
    """Files that would be newer too, of which nothing is known: not that they are checkpoints, nor that they are none."""

    @property
    def latest(self) -> Checkpoint | None:
        """The newest complete candidate, None when there is none."""
        return next((c for c in self.candidates if c.complete), None)

    @property
    def passed_over(self) -> tuple[Checkpoint, ...]:
        """Candidates that rank before the latest and are not complete; all of them when none is."""
        found: list[Checkpoint] = []
        for candidate in self.candidates:
            if candidate.complete:
                break
            found.append(candidate)
        return tuple(found)

    @property
    def unreadable(self) -> tuple[Checkpoint, ...]:
        """Candidates that nothing is known about."""
        return tuple(c for c in self.candidates if c.verdict is Verdict.UNREADABLE)
