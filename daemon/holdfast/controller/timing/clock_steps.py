"""Steps of the wall clock: times recorded before one are read as if the clock had always been right. Pure.

Holdfast's own times in the store are wall times. A step of an hour would make all of them an hour older, or put them in the future, and
falsify every timeout, pause and window. So times from before a step are read with the step added (:func:`carry`), and written back
unchanged (:func:`as_recorded`). Times that operators, the provider or Slurm's reservations name stay wall times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from holdfast.model.actions.action import Intent
from holdfast.model.agents.reach import HeadProbe
from holdfast.model.agents.report import AgentView, Finding
from holdfast.model.book import Book, Brake, Change, CheckpointRecord, NodeRecord, World
from holdfast.model.event import Event
from holdfast.model.incidents.incident import Incident, IncidentKind, Recovery
from holdfast.model.jobs.job_ends import JobEnd
from holdfast.model.operators.suppression import Suppression
from holdfast.model.slurm.cluster import HOLDING_STATES, ClusterView, Job, Reservation

T = TypeVar("T")
NOTE = "clock.steps"
"""Name of the note in the store that keeps the steps for the next process."""
MOST = 16
"""Maximum number of steps that are remembered."""
_NOTICED_WITHIN = timedelta(seconds=60)
"""A step is noticed within this time; the lease is lost much earlier."""
_FUTURE = timedelta(seconds=5)
_OWN: Mapping[type, tuple[str, ...]] = {
    Incident: ("opened_at", "state_since", "closed_at", "validated_at", "drain_lost_at", "fault_at"),
    Intent: ("planned_at", "started_at", "finished_at"),
    JobEnd: ("ended_at", "seen_at", "started_at"),
    Finding: ("received_at", "fault_at", "cleared_at", "last_fault_at"),
    Recovery: ("created_at", "started_at", "checkpoint_at"),
    Brake: ("tripped_at", "released_at"),
    NodeRecord: (
        "checked_at",
        "deep_at",
        "hands_since",
        "hands_ended_at",
        "unreached_since",
        "unreached_by",
        "unreached_until",
        "alive_at",
    ),
    CheckpointRecord: ("saved_at", "progress_at", "phase_at", "step_at", "own_at", "resumed_at", "surveyed_at"),
    HeadProbe: ("at", "answered_at", "failing_since"),
    AgentView: ("last_heard", "first_heard", "set_aside_since", "fabric_moved_at", "words_until"),
}
"""Times that Holdfast recorded by its own clock."""


@dataclass(frozen=True, slots=True)
class ClockStep:
    """The wall clock of the controller's machine was set."""

    noticed_at: datetime
    """Time on the clock after it was set."""
    by_s: float
    """Positive: it was set ahead."""
    known: frozenset[datetime] = frozenset()
    """Times that were recorded before the step. After a step back, a time alone does not show which pass of a repeated hour it is from."""

    @property
    def by(self) -> timedelta:
        return timedelta(seconds=self.by_s)

    def follows(self, at: datetime, until: datetime) -> bool:
        """Whether the time was recorded before the step. ``until``: what the clock showed at the end of what followed it."""
        if at in self.known or at > until + _FUTURE:
            return True
        return at <= self.noticed_at - self.by if self.by_s > 0 else at < self.noticed_at - _NOTICED_WITHIN


def ahead(steps: Iterable[ClockStep]) -> timedelta:
    """Total by which the clock was set ahead: events that the rules look back at may have been recorded that much earlier."""
    return sum((step.by for step in steps if step.by_s > 0), timedelta(0))


def as_if_right(at: datetime, steps: Sequence[ClockStep], now: datetime) -> datetime:
    """Convert a time recorded before, between or after these steps (oldest first) to the clock as it is set now."""
    by, until = timedelta(0), now
    for step in reversed(steps):
        if not step.follows(at, until):
            break
        by += step.by
        until = step.noticed_at - step.by
    return at + by


def carry(world: World, steps: tuple[ClockStep, ...]) -> tuple[World, dict[datetime, datetime]]:
    """The world with all of Holdfast's own times converted to the clock as it is set now, and each time as it is recorded."""
    recorded: dict[datetime, datetime] = {}
    if not steps:
        return world, recorded

    def moved(at: datetime) -> datetime:
        after = as_if_right(at, steps, world.now)
        if after != at:
            recorded[after] = at
        return after

    book = world.book
    carried = replace(
        book,
        incidents=_each(book.incidents, moved),
        findings=_each(book.findings, moved),
        recoveries=_each(book.recoveries, moved),
        intents=_each(book.intents, moved),
        nodes=_each(book.nodes, moved),
        brakes=_each(book.brakes, moved),
        suppressions={number: _ends_in_time(s, moved, world.now) for number, s in book.suppressions.items()},
        ends=_each(book.ends, moved),
        checkpoints={job: _each(claims, moved) for job, claims in book.checkpoints.items()},
    )
    view = _begun(_view(world.view, moved), book, world.now) if world.view is not None else None
    return replace(world, book=carried, view=view), recorded


def _ends_in_time(known: Suppression, moved: Callable[[datetime], datetime], now: datetime) -> Suppression:
    """A suppression ordered while the clock was ahead lasts for its ordered duration, not until that wall time comes again."""
    by = moved(known.created_at) - known.created_at if known.created_at > now + _FUTURE else timedelta(0)
    return replace(known, until=known.until + by) if by else known


def not_to_come(events: Iterable[Event], steps: Sequence[ClockStep], now: datetime) -> list[Event]:
    """Events of the record; times in the future, from before the clock was set back, are converted to the clock as it is set now."""
    return [replace(e, at=as_if_right(e.at, steps, now)) if e.at > now + _FUTURE else e for e in events]


def carry_probe(probe: HeadProbe, step: ClockStep) -> HeadProbe:
    """Convert a probe from before the step to the clock as it was just set."""
    return _moved(probe, lambda at: at + step.by)


def carry_agent(agent: AgentView, step: ClockStep) -> AgentView:
    """Convert an agent's state from before the step to the clock as it was just set."""
    return _moved(agent, lambda at: at + step.by)


def as_recorded(
    change: Change, recorded: Mapping[datetime, datetime], steps: Sequence[ClockStep], now: datetime
) -> Change:
    """The change with times from before a step as the store has them, or is to have them."""
    if not steps:
        return change

    def back(at: datetime) -> datetime:
        return recorded.get(at) or _unmoved(at, steps, now)

    return replace(
        change,
        incidents=tuple(_moved(i, back) for i in change.incidents),
        recoveries=tuple(_moved(r, back) for r in change.recoveries),
        nodes=tuple(_moved(n, back) for n in change.nodes),
        brakes=tuple(_moved(b, back) for b in change.brakes),
        ends=tuple(_moved(e, back) for e in change.ends),
    )


def _unmoved(at: datetime, steps: Sequence[ClockStep], now: datetime) -> datetime:
    """Recorded form of a time that this process remembers (such as an agent's last report): reading it back must give the same time."""
    if as_if_right(at, steps, now) == at:
        return at
    by = timedelta(0)
    for step in reversed(steps):
        by += step.by
        if as_if_right(at - by, steps, now) == at:
            return at - by
    return at


def own_times(book: Book) -> frozenset[datetime]:
    """All times that Holdfast itself recorded, in a state snapshot as the store has it."""
    nouns: Iterable[Any] = (
        *book.incidents.values(),
        *book.findings.values(),
        *book.recoveries.values(),
        *book.intents.values(),
        *book.nodes.values(),
        *book.brakes.values(),
        *book.ends.values(),
        *(claim for claims in book.checkpoints.values() for claim in claims.values()),
    )
    times = (getattr(noun, name) for noun in nouns for name in _OWN[type(noun)])
    return frozenset(at for at in times if at is not None)


def _each(nouns: Mapping[Any, T], moved: Callable[[datetime], datetime]) -> dict[Any, T]:
    return {key: _moved(noun, moved) for key, noun in nouns.items()}


def _moved(noun: T, moved: Callable[[datetime], datetime]) -> T:
    names = _OWN[type(noun)]
    if isinstance(noun, Incident) and noun.kind is IncidentKind.SLURM_DRAIN:
        names = tuple(name for name in names if name != "fault_at")  # Slurm's own time, compared with what Slurm shows
    times = {name: at for name in names if (at := getattr(noun, name)) is not None}
    changed = {name: after for name, at in times.items() if (after := moved(at)) != at}
    return replace(noun, **changed) if changed else noun  # type: ignore[type-var]


def _view(view: ClusterView, moved: Callable[[datetime], datetime]) -> ClusterView:
    """The view with jobs' starts and ends converted: they are compared with Holdfast's own times."""
    return replace(view, jobs={number: _job(job, moved) for number, job in view.jobs.items()})


def _begun(view: ClusterView, book: Book, now: datetime) -> ClusterView:
    """Keep reservations active that started before the clock was set back and whose start is now in the future: the same users still hold
    their nodes. ``book``: as recorded."""

    def begun(each: Reservation) -> bool:
        found = (book.nodes[name] for name in each.nodes if name in book.nodes)
        since = (r.hands_since for r in found if r.hands and r.hands_since is not None)
        at = each.start_time
        return at is not None and at > now and any(at <= noted + _NOTICED_WITHIN for noted in since)

    known = {n: replace(r, start_time=None) if begun(r) else r for n, r in view.reservations.items()}
    return replace(view, reservations=known)


def _job(job: Job, moved: Callable[[datetime], datetime]) -> Job:
    start = moved(job.start_time) if job.start_time is not None and job.state in HOLDING_STATES else job.start_time
    end = moved(job.end_time) if job.end_time is not None and job.state not in HOLDING_STATES else job.end_time
    suspend = moved(job.suspend_time) if job.suspend_time is not None else None
    if (start, end, suspend) == (job.start_time, job.end_time, job.suspend_time):
        return job
    return replace(job, start_time=start, end_time=end, suspend_time=suspend)


def write(steps: tuple[ClockStep, ...]) -> str:
    """The steps as text for the store, without the times that were known."""
    return " ".join(f"{step.noticed_at.timestamp()}/{step.by_s}" for step in steps)


def read(text: str | None) -> tuple[ClockStep, ...]:
    """Parse what :func:`write` wrote; no steps where it cannot be read."""
    pairs = [each.partition("/") for each in (text or "").split()]
    try:
        return tuple(ClockStep(datetime.fromtimestamp(float(at), UTC), float(by_s)) for at, _, by_s in pairs)
    except (ValueError, OverflowError, OSError):
        return ()
