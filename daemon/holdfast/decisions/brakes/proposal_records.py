"""The record of proposals: asked, updated in place, expired, withdrawn; and the notices about them. Pure.

A proposal is asked when the guard holds a step back for want of an accept. It is withdrawn when the step is no longer called for, or needs
no accept any more."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta

from holdfast.decisions.brakes.guard import Guarded
from holdfast.decisions.brakes.proposing import Ask, job_of, subjects
from holdfast.decisions.brakes.step_kinds import JOB_KINDS, text_of
from holdfast.decisions.common import slurm_view
from holdfast.model.actions import steps
from holdfast.model.actions.action import Notify, Proposal
from holdfast.model.book import World
from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import Incident
from holdfast.model.notice import NoticeLevel, Topic
from holdfast.model.operators.proposals import (
    LIVE,
    ProposalRecord,
    ProposalState,
    Question,
    kept,
    proposal_id,
)

UNSEEN_S = 60.0
"""A proposal is withdrawn once its step was not called for for this long: Slurm may have been unreadable for a moment."""


@dataclass(frozen=True, slots=True)
class Followed:
    """Changes to the records of proposals."""

    incidents: tuple[Incident, ...] = ()
    """Those whose proposals changed."""
    events: tuple[Event, ...] = ()
    notices: tuple[Proposal, ...] = ()


def follow(world: World, proposals: tuple[Proposal, ...], guarded: Guarded) -> Followed:
    """The incidents' proposals after this turn. ``proposals``: all steps that the turn decided on, whatever holds them back."""
    concerned = {a.proposal.incident_id for a in guarded.asks} | {
        i.id for i in world.book.open_incidents() if i.proposals
    }
    seen = subjects(world, proposals) if concerned else frozenset()
    free = subjects(world, guarded.allowed) if concerned else frozenset()
    changed, events, notices = [], list[Event](), list[Proposal]()
    for number in sorted(concerned):
        incident = world.book.incidents.get(number)
        if incident is None or not incident.open:
            continue
        asks = [a for a in guarded.asks if a.proposal.incident_id == number]
        following = _Following(world, incident, asks, _of(seen, number), _of(free, number))
        after = replace(incident, proposals=kept(following.records()))
        events += following.events
        changed += [after] if after != incident else []
        notices += _notices(world, after)
    return Followed(tuple(changed), tuple(events), tuple(notices))


def _of(found: Collection[tuple[str, Question]], incident_id: str) -> frozenset[Question]:
    return frozenset(question for owner, question in found if owner == incident_id)


class _Following:
    """One incident's proposals in one turn."""

    def __init__(
        self,
        world: World,
        incident: Incident,
        asks: Iterable[Ask],
        seen: frozenset[Question],
        free: frozenset[Question],
    ) -> None:
        self._world, self._incident, self._seen, self._free = world, incident, seen, free
        self._asks = {ask.question: ask for ask in reversed(list(asks))}
        self.events: list[Event] = []

    def records(self) -> tuple[ProposalRecord, ...]:
        """All of them after this turn, by number."""
        current = [self._moved(record) for record in self._incident.proposals]
        for ask in reversed(self._asks.values()):
            if ask.record is None:
                current = self._asked(current, ask)
        return tuple(sorted(current, key=lambda r: r.number))

    def _moved(self, record: ProposalRecord) -> ProposalRecord:
        """The record as time and the turn's decisions leave it."""
        if record.status not in LIVE:
            return record
        record = self._refreshed(record)
        if record.question in self._free and record.question not in self._asks:
            return self._ended(record, ProposalState.WITHDRAWN, "no accept is needed any more")
        if self._gone(record):
            return self._ended(record, ProposalState.WITHDRAWN, "the step is no longer called for")
        if self._world.now < record.until or record.status is ProposalState.EXPIRED:
            return record
        if record.status is ProposalState.SNOOZED:
            return self._asked_again(record)
        return self._ended(record, ProposalState.EXPIRED, "no one answered; nothing is done")

    def _refreshed(self, record: ProposalRecord) -> ProposalRecord:
        """With the newest reason and severity while it is asked, and since when it is not."""
        ask = self._asks.get(record.question)
        if ask is not None and record.status is ProposalState.OPEN:
            record = replace(
                record, reason=ask.proposal.reason, severity=self._incident.severity, dead=self._incident.dead
            )
        if any(record.question.resembles(each) for each in self._seen):
            return replace(record, unseen_since=None)
        blind = slurm_view.fresh_view(self._world) is None or self._world.frozen is not None
        return record if blind else replace(record, unseen_since=record.unseen_since or self._world.now)

    def _gone(self, record: ProposalRecord) -> bool:
        since = record.unseen_since
        return since is not None and self._world.now - since >= timedelta(seconds=UNSEEN_S)

    def _asked_again(self, record: ProposalRecord) -> ProposalRecord:
        now = self._world.now
        again = replace(record, status=ProposalState.OPEN, asked_at=now, until=now + self._expires, answered_at=None)
        self._event(again, EventKind.PROPOSAL_OPENED, f"asked again: {again.what}")
        return again

    def _ended(self, record: ProposalRecord, state: ProposalState, why: str) -> ProposalRecord:
        after = replace(record, status=state)
        self._event(after, EventKind.PROPOSAL_ENDED, f"{state.value}: {record.what} ({why})")
        return after

    def _asked(self, current: list[ProposalRecord], ask: Ask) -> list[ProposalRecord]:
        """A new proposal, in place of one of the same node or job that is no longer what would be done."""
        old = next((r for r in current if self._gives_way(r, ask.question)), None)
        new = self._new(ask, old, max((r.number for r in current), default=0) + 1)
        was = f" (instead of {proposal_id(self._incident.id, old.number)}: {old.what})" if old is not None else ""
        self._event(new, EventKind.PROPOSAL_OPENED, f"waits for an accept: {new.what}{was}")
        return [*(r for r in current if r is not old), new]

    def _gives_way(self, record: ProposalRecord, question: Question) -> bool:
        if record.status is ProposalState.REOPENED:
            return record.question.resembles(question)
        if record.status not in LIVE or _track(record.question) != _track(question):
            return False
        return record.question.resembles(question) or not any(record.question.resembles(each) for each in self._seen)

    def _new(self, ask: Ask, old: ProposalRecord | None, number: int) -> ProposalRecord:
        now, kind, job = self._world.now, ask.question.kind, job_of(ask)
        assert kind is not None  # noqa: S101 - the guard asks about a kind alone
        return ProposalRecord(
            number=number,
            question=ask.question,
            status=ProposalState.OPEN,
            what=text_of(kind, self._incident.node, job, ask.question.machine),
            reason=ask.proposal.reason,
            opened_at=old.opened_at if old is not None else now,
            asked_at=now,
            until=now + self._expires,
            node=ask.proposal.action.target.node or self._incident.node,
            job=job,
            severity=self._incident.severity,
            dead=self._incident.dead,
            was=old.number if old is not None else None,
        )

    @property
    def _expires(self) -> timedelta:
        return timedelta(seconds=self._world.policy.propose.expires_s)

    def _event(self, record: ProposalRecord, kind: EventKind, text: str) -> None:
        name = proposal_id(self._incident.id, record.number)
        detail = {"proposal": name, "step": record.question.kind, "state": record.status.value, "job_id": record.job}
        event = Event(
            self._world.now, kind, self._incident.id, self._incident.node, text=f"{name} {text}", detail=detail
        )
        self.events.append(event)


def _track(question: Question) -> str:
    """Proposals of one track take each other's place: all about the node are one, those of each job another."""
    return question.target if question.kind in JOB_KINDS else ""


# Notices


def _notices(world: World, incident: Incident) -> list[Proposal]:
    """One for all that an incident asks, until another question comes; and one when no one has answered."""
    waiting = [r for r in incident.proposals if r.status is ProposalState.OPEN]
    expired = [r for r in incident.proposals if r.status is ProposalState.EXPIRED]
    found = []
    if waiting:
        newest = max(waiting, key=lambda r: (r.asked_at, r.number))
        step = steps.notify_proposals(newest.number, newest.asked_at)
        found.append((step, _waiting_text(incident, waiting, newest)))
    if expired:
        newest = expired[-1]
        found.append((steps.notify_proposal_expired(newest.number), _expired_text(incident, newest)))
    return [
        Proposal(incident.id, step, notice, notice.subject, order=90)
        for step, notice in found
        if world.may_try(incident.id, step)
    ]


def _waiting_text(incident: Incident, waiting: list[ProposalRecord], newest: ProposalRecord) -> Notify:
    more = f" (and {len(waiting) - 1} more)" if len(waiting) > 1 else ""
    lines = [incident.headline]
    for record in waiting:
        name = proposal_id(incident.id, record.number)
        lines += [
            f"{record.what}: {record.reason}",
            f"  expires {record.until:%Y-%m-%d %H:%M} UTC; then nothing is done",
            f"  holdfast accept {name} --reason WHY",
            f"  holdfast dismiss {name} --reason WHY",
            f"  holdfast snooze {name} --for 2h",
        ]
    subject = f"{incident.node or 'a job'}: accept or dismiss: {newest.what}{more}"
    return Notify(subject, "\n".join(lines), NoticeLevel.NEEDS_SOMEBODY, Topic.PROPOSAL)


def _expired_text(incident: Incident, record: ProposalRecord) -> Notify:
    name = proposal_id(incident.id, record.number)
    body = (
        f"{incident.headline}\nProposal {name} was asked at {record.asked_at:%Y-%m-%d %H:%M} UTC; no one answered, and nothing was done. "
        f"The incident waits for an operator.\nTo be asked again: holdfast reopen {name}"
    )
    subject = f"{incident.node or 'a job'}: no one answered the proposal to {record.what}"
    return Notify(subject, body, NoticeLevel.NEEDS_SOMEBODY, Topic.PROPOSAL)
