"""An elastic job as its Slurm comment declares it, and the names that follow from it. Pure; standard library only.

An elastic job is two job arrays of one user: the *base* array (elements 0 … min-1, where nothing preempts) and the *flexible* one (elements
min … max-1, and one more for each warm spare, where Slurm may preempt). Each element is a replica group. The comment declares it:
``holdfast elastic=2:4`` on the base array, ``holdfast elastic=2:4 of=71`` on the flexible one, 71 being the base array's job id."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from holdfast.model.elastic_jobs.sizes import BadSizes, Sizes, parse_sizes

ELASTIC_WORD = "elastic="
_OF, _SPARES = "of=", "spares="
SPARES_MAX = 1000
REQUEUE_EXIT = 85
"""Exit status of a group that left in good order and wants to come back: ``RequeueExit`` of slurm.conf names it."""
NO_REQUEUE_EXIT = 93
"""Exit status of a group that must not be queued again (the number that NVRx uses)."""


class GroupRole(StrEnum):
    """Role of a replica group in its job."""

    BASE = "base"
    """One of the minimum number: in the array that nothing preempts."""
    FLEXIBLE = "flexible"
    SPARE = "spare"
    """Beyond the largest size: started, and outside until a group is gone."""


class LeaveReason(StrEnum):
    """Reason why a group is asked to leave, as sent to its launcher."""

    PREEMPT = "preempt"
    """Its nodes serve a job of higher priority."""
    SCALE = "scale"
    """Without it the job has a legal size."""
    DRAIN = "drain"
    """Its node was taken out of service."""
    MAINTENANCE = "maintenance"


@dataclass(frozen=True, slots=True)
class ElasticSpec:
    """Declaration in one array's comment."""

    sizes: Sizes
    spares: int = 0
    """Warm spares: groups beyond the largest size that are started and wait outside."""
    of: int | None = None
    """Array job id of the base array; None: this is it."""

    @property
    def comment(self) -> str:
        """The words that :func:`parse_comment` reads."""
        words = ["holdfast", f"{ELASTIC_WORD}{self.sizes.text}"]
        words += [f"{_SPARES}{self.spares}"] if self.spares else []
        words += [f"{_OF}{self.of}"] if self.of is not None else []
        return " ".join(words)

    @property
    def base_indices(self) -> range:
        """Task ids of the base array."""
        return range(self.sizes.least)

    @property
    def flexible_indices(self) -> range:
        """Task ids of the flexible array, those of the spares last."""
        return range(self.sizes.least, self.sizes.most + self.spares)


def declares_elastic(comment: str) -> bool:
    """The comment says that its job is a group of an elastic one, whether or not it makes sense."""
    return ELASTIC_WORD in comment  # rule prose: the word by which users declare it


def parse_comment(comment: str) -> ElasticSpec | None:
    """None: the comment declares nothing. Other words are left alone. Raises BadSizes for a declaration that makes no sense."""
    words = comment.replace(",", " ").split()  # rule prose: how users declare it
    declared = [w.removeprefix(ELASTIC_WORD) for w in words if w.startswith(ELASTIC_WORD)]
    if not declared:
        return None
    if len(set(declared)) > 1:
        raise BadSizes(f"the comment declares several sizes: {' and '.join(declared)}")
    of = _number(words, _OF, 2**32 - 1)
    return ElasticSpec(parse_sizes(declared[0]), _number(words, _SPARES, SPARES_MAX) or 0, of)


def _number(words: list[str], key: str, most: int) -> int | None:
    given = {w.removeprefix(key) for w in words if w.startswith(key)}
    if not given:
        return None
    text = given.pop()
    if given or not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= most):
        raise BadSizes(f"{key}{text} is no whole number up to {most}, or given twice")
    return int(text)


def start_name(job_id: int, restarts: int, attempt: int = 0) -> str:
    """Names one start of a group: Slurm's id of the element's record, its restarts, and starts that Slurm does not see (from 1).

    A fence on a start covers its later attempts."""
    return f"{job_id}.{restarts}" + (f".{attempt}" if attempt else "")


def member(group: int, start: str) -> str:
    """Name of one start of a group in the evictions of a rendezvous."""
    return f"{group}~{start}"
