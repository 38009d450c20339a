"""Steps held back by tripped brakes: a release would start them at once. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.model.actions.action import Drain, Intent, IntentState, Requeue
from holdfast.model.book import Book
from holdfast.model.incidents.incident import IncidentState, RecoveryPhase


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Nodes that are not drained, and running jobs that are not stopped, for as long as a brake holds."""

    nodes: frozenset[str]
    jobs: frozenset[int]

    @property
    def text(self) -> str:
        return f"{_count(len(self.nodes), 'node')} to drain and {_count(len(self.jobs), 'running job')} to stop"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def held_back(book: Book) -> HeldBack:
    """Count the recorded steps that were withheld and not taken since. Pause and hands off withhold too: the number is an upper bound."""
    waiting = {i.id for i in book.open_incidents() if i.state is IncidentState.OPEN and not i.acknowledged}
    nodes = {i.action.node for i in _withheld(book) if isinstance(i.action, Drain) and i.incident_id in waiting}
    jobs = {i.action.job.job_id for i in _withheld(book) if isinstance(i.action, Requeue) and _waits(book, i.action)}
    return HeldBack(frozenset(nodes), frozenset(jobs))


def _withheld(book: Book) -> Iterable[Intent]:
    return (i for i in book.intents.values() if i.state is IntentState.WITHHELD)


def _waits(book: Book, action: Requeue) -> bool:
    recovery = book.recovery_of(action.job, action.restarts)
    return recovery is not None and recovery.phase is RecoveryPhase.WAITING
