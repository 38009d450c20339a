"""Proposals: steps that wait until an operator accepts them, and the operator's answer. Pure; standard library only.

A proposal is part of its incident's record, so that an answer is written in one transaction with the check that the incident is open, and a
change that the controller decided from an older snapshot is refused. Its number grows with each situation that is asked about: an answer
names the number that the operator saw, so an answer to an earlier situation is never taken for one to the present one
(``docs/decisions/0034-an-accept-is-bound-to-what-was-seen.md``)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from holdfast.model.errors import NotFound, Rejected
from holdfast_checks.result import Severity
from holdfast_checks.settings.option import option
from holdfast_checks.words import unknown_reads_as


@unknown_reads_as(None, "the step is asked for again")
class StepKind(StrEnum):
    """Kinds of steps that an operator may be asked about, as ``[propose] steps`` names them."""

    DRAIN = "drain"
    """A node is taken out of scheduling; its jobs continue."""
    SET_DOWN = "set_down"
    """A node is declared DOWN; Slurm ends and requeues its jobs."""
    STOP_JOB = "stop_job"
    """A running job is stopped because of a finding: asked to save, requeued, held, or a group of it is asked to leave."""
    REQUEUE = "requeue"
    """A job whose run is over (it failed, or its node died) is queued again."""
    RESET_GPU = "reset_gpu"
    REBOOT = "reboot"
    STOP_START = "stop_start"
    """The machine is stopped and started on another host."""
    REPLACE = "replace"
    """Another machine is launched, takes the node's name, and the old one is terminated; or it is exchanged in place."""
    FENCE = "fence"
    """A dead node's machine is terminated, so that its old run can write nothing."""
    SPARE = "spare"
    """A node is put into the spare pool, or taken out of it other than for a job."""
    RESIZE = "resize"
    """An elastic job grows or shrinks."""
    UNDRAIN = "undrain"
    """A node that Holdfast had drained goes back into service."""


DEFAULT_STEPS = tuple(kind.value for kind in StepKind if kind is not StepKind.UNDRAIN)
"""Everything that takes something away or costs money. A return to service only undoes Holdfast's own drain."""


@unknown_reads_as("dismissed", "the step is not done; an operator can have it proposed again")
class ProposalState(StrEnum):
    OPEN = "open"
    """An operator has to answer."""
    ACCEPTED = "accepted"
    """The step may be done, once, until ``until``."""
    DISMISSED = "dismissed"
    """Not done, unless the situation becomes worse."""
    SNOOZED = "snoozed"
    """Not done; asked again at ``until``."""
    EXPIRED = "expired"
    """No one answered in time: not done, the incident waits for an operator."""
    WITHDRAWN = "withdrawn"
    """The step is no longer called for."""
    REOPENED = "reopened"
    """An operator wants to be asked again; the next turn does, under a new number."""


LIVE = frozenset({ProposalState.OPEN, ProposalState.SNOOZED, ProposalState.EXPIRED})
"""States in which an answer is still owed."""
WAITING = frozenset({ProposalState.OPEN, ProposalState.SNOOZED})
"""States that ``holdfast accept`` takes."""
MOST = 64
"""Proposals that an incident's record keeps; the oldest that need no answer go first."""


@dataclass(frozen=True, slots=True)
class ProposePolicy:
    """What is asked in mode propose, and for how long."""

    steps: tuple[str, ...] = option(
        DEFAULT_STEPS,
        f"Kinds of steps that wait for an operator's accept: {', '.join(StepKind)}. Other steps are done as in act.",
        one_of=StepKind,
    )
    expires_s: int = option(
        24 * 3600,
        "A proposal that no one answers expires after this long: nothing is done, and an operator is notified.",
        low=60,
        why="no one could answer",
    )
    accepted_s: int = option(
        4 * 3600,
        "An accepted step that could not be begun within this long (a brake, a budget, no capacity) is asked for again.",
        low=60,
        why="no step could be begun",
    )


@dataclass(frozen=True, slots=True)
class Question:
    """What exactly is asked about: an accept counts for the very same alone."""

    kind: StepKind | None
    target: str
    """Node with the repair's attempt, or run of a job: what the step is done to."""
    machine: str = ""
    """Machine that is to be touched; empty: the step touches none."""
    boot: str = ""
    """Its boot, where the step is meant for one boot only."""

    def covers(self, other: Question) -> bool:
        """Whether a yes to this is one to the other: the same, or the lesser step of queueing the job again once it failed on its own."""
        lesser = (self.kind, other.kind) == (StepKind.STOP_JOB, StepKind.REQUEUE)
        return self == other or (lesser and self.target == other.target)

    def resembles(self, other: Question) -> bool:
        """The same step at the same machine, whatever its boot: what was dismissed stays dismissed after a reboot."""
        return (self.kind, self.target, self.machine) == (other.kind, other.target, other.machine)


@dataclass(frozen=True, slots=True)
class ProposalRecord:
    """A step that waits for an operator, or was answered by one."""

    number: int
    """Within its incident; another situation gets another number."""
    question: Question
    status: ProposalState
    what: str
    """One line: what would be done, to what."""
    reason: str
    """Why, as the decision gives it."""
    opened_at: datetime
    """When this was first asked; an update in place keeps it."""
    asked_at: datetime
    """When this number was asked, or asked again after a snooze."""
    until: datetime
    """Open: when it expires. Accepted: until when the step may be begun. Snoozed: when it is asked again."""
    node: str = ""
    job: int | None = None
    severity: Severity | None = None
    """Of the incident when it was asked."""
    dead: bool = False
    """The incident's node counted as dead when it was asked."""
    was: int | None = None
    """Number that this one took the place of; None: it is the first."""
    by: str = ""
    """Who answered last; empty: no one."""
    why: str = ""
    """The reason that they gave."""
    answered_at: datetime | None = None
    unseen_since: datetime | None = None
    """Since when the step is no longer proposed; None: it is."""

    @property
    def of_job(self) -> bool:
        return self.job is not None

    def worse(self, severity: Severity, *, dead: bool) -> bool:
        """Whether the incident is worse than when this was asked: a higher severity, or its node is dead by now."""
        higher = self.severity is not None and _GRAVITY.index(severity) < _GRAVITY.index(self.severity)
        return higher or (dead and not self.dead)


_GRAVITY = tuple(Severity)
"""The gravest first."""


_ID = re.compile(r"([0-9a-z]{12})\.([1-9][0-9]{0,5})", re.ASCII)


def proposal_id(incident_id: str, number: int) -> str:
    """``INCIDENT.NUMBER``, as operators name a proposal."""
    return f"{incident_id}.{number}"


def parse_id(name: str) -> tuple[str, int]:
    """Incident and number. Raises NotFound for what is no proposal's id."""
    found = _ID.fullmatch(name)
    if found is None:
        raise NotFound(f"{name!r} is no proposal's id such as 0h3k5d2m8x1q.1; see: holdfast proposals")
    return found[1], int(found[2])


class Answer(StrEnum):
    """What an operator says to a proposal."""

    ACCEPT = "accept"
    DISMISS = "dismiss"
    SNOOZE = "snooze"
    REOPEN = "reopen"
    """Ask me again: of one that was dismissed or has expired."""


@dataclass(frozen=True, slots=True)
class Said:
    """One operator's answer."""

    answer: Answer
    who: str
    why: str
    at: datetime
    until: datetime | None = None
    """Of an accept: until when it counts; of a snooze: when to ask again."""


def answered(
    records: tuple[ProposalRecord, ...], incident_id: str, number: int, said: Said
) -> tuple[tuple[ProposalRecord, ...], ProposalRecord]:
    """The incident's proposals after an answer, and the one that was answered. Raises NotFound for an unknown number, Rejected in one line
    for one that takes no such answer (any more)."""
    record = next((each for each in records if each.number == number), None)
    name = proposal_id(incident_id, number)
    if record is None:
        raise _unknown(records, incident_id, number)
    if (refusal := _refusal(record, said)) is not None:
        raise Rejected(f"proposal {name} {refusal}")
    after = replace(
        record,
        status=_STATES[said.answer],
        until=said.until or record.until,
        by=said.who,
        why=said.why,
        answered_at=said.at,
    )
    return tuple(after if each is record else each for each in records), after


_STATES = {
    Answer.ACCEPT: ProposalState.ACCEPTED,
    Answer.DISMISS: ProposalState.DISMISSED,
    Answer.SNOOZE: ProposalState.SNOOZED,
    Answer.REOPEN: ProposalState.REOPENED,
}


def _unknown(records: tuple[ProposalRecord, ...], incident_id: str, number: int) -> Exception:
    later = next((r for r in reversed(records) if r.number > number and r.status in LIVE), None)
    name = proposal_id(incident_id, number)
    if later is None or number < 1:
        return NotFound(f"there is no proposal {name}; see: holdfast proposals")
    return Rejected(
        f"proposal {name} has changed since: it is {proposal_id(incident_id, later.number)} now, to {later.what}; "
        "see: holdfast proposals"
    )


def _refusal(record: ProposalRecord, said: Said) -> str | None:
    """Why the answer is not taken; None: it is."""
    if said.answer is Answer.REOPEN:
        again = (ProposalState.DISMISSED, ProposalState.EXPIRED)
        return (
            None if record.status in again else f"is {_is(record)}: only a dismissed or expired one is proposed again"
        )
    if said.answer is Answer.DISMISS and record.status is ProposalState.ACCEPTED:
        return None  # taken back: what was begun is finished, what was not is not begun
    over = record.status is ProposalState.EXPIRED or (record.status is ProposalState.OPEN and said.at >= record.until)
    if over:
        return "has expired; to be asked again: holdfast reopen, with its ID"
    if record.status not in WAITING:
        return f"is no longer open: {_is(record)}"
    return None


def _is(record: ProposalRecord) -> str:
    by = f" by {record.by}" if record.by else ""
    return f"{record.status.value}{by}"


def kept(records: tuple[ProposalRecord, ...]) -> tuple[ProposalRecord, ...]:
    """At most :data:`MOST`: the oldest withdrawn ones go first, never one that is still owed an answer or was dismissed."""
    spare = [r for r in records if r.status in (ProposalState.WITHDRAWN, ProposalState.REOPENED)]
    gone = {r.number for r in spare[: max(0, len(records) - MOST)]}
    return tuple(r for r in records if r.number not in gone)


LONGEST_SNOOZE = timedelta(days=7)
