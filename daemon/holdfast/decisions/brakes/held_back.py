"""Steps held back by tripped brakes: a release would start them at once. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.decisions.common import brake_scopes
from holdfast.decisions.common.wording import counted
from holdfast.model.actions.action import Drain, Intent, IntentState, Requeue
from holdfast.model.book import Book, Brake, World
from holdfast.model.incidents.incident import IncidentState, RecoveryPhase


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Nodes that are not drained, and running jobs that are not stopped, for as long as a brake holds."""

    nodes: frozenset[str]
    jobs: frozenset[int]

    @property
    def text(self) -> str:
        return f"{counted(len(self.nodes), 'node')} to drain and {counted(len(self.jobs), 'running job')} to stop"


def held_back(book: Book, brake: Brake) -> HeldBack:
    """Count the recorded steps on the brake's nodes that were withheld and not taken since. Pause and hands off withhold too: the number is
    an upper bound."""
    waiting = {i.id for i in book.open_incidents() if i.state is IncidentState.OPEN and not i.acknowledged}
    drains = [i for i in _withheld(book) if isinstance(i.action, Drain) and i.incident_id in waiting]
    nodes = {i.action.node for i in drains if isinstance(i.action, Drain) and brake.had((i.action.node,))}
    jobs = {
        i.action.job.job_id for i in _withheld(book) if isinstance(i.action, Requeue) and _waits(book, brake, i.action)
    }
    return HeldBack(frozenset(nodes), frozenset(jobs))


def why_now(world: World, brake: Brake, between: str) -> str:
    """Why the brake tripped, ``between``, and what it holds back now; of one whose set is gone from the settings, that it still holds."""
    lost = brake_scopes.lost_set(world, brake)
    return f"{brake.reason}{between}{held_back(world.book, brake).text}{f'; {lost}' if lost else ''}"


def _withheld(book: Book) -> Iterable[Intent]:
    return (i for i in book.intents.values() if i.state is IntentState.WITHHELD)


def _waits(book: Book, brake: Brake, action: Requeue) -> bool:
    recovery = book.recovery_of(action.job, action.restarts)
    if recovery is None or recovery.phase is not RecoveryPhase.WAITING:
        return False
    incident = book.incidents.get(recovery.incident_id)
    return brake.had((*recovery.nodes_before, *((incident.node,) if incident is not None else ())))
