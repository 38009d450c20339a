"""Step of an incident that a brake or a budget holds back now. Pure: the guard's own rules are asked again about what it withheld."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.decisions.brakes.guard import brake_about, unpaid
from holdfast.decisions.common import attempted_steps
from holdfast.decisions.common.budgets import Purse
from holdfast.model.actions.action import Intent, IntentState, Proposal, Requeue
from holdfast.model.book import Book, Brake, World
from holdfast.model.incidents.incident import Incident


@dataclass(frozen=True, slots=True)
class HeldStep:
    """A step that would be taken but for a brake or a budget."""

    intent: Intent
    brake: Brake | None
    """None: a budget holds it."""
    why: str
    """Why the brake tripped, or which budget is spent."""

    @property
    def text(self) -> str:
        """For people."""
        if self.brake is None:
            return f"held back: {self.why}"
        since = f"since {self.brake.tripped_at:%Y-%m-%d %H:%M} UTC"
        return (
            f"held back by brake {self.brake.name!r} {since}, `holdfast release {self.brake.name}` ends it: {self.why}"
        )


def step_held(world: World, incident: Incident) -> HeldStep | None:
    """The newest step that was withheld, was not taken since, and is held by a brake or a budget now; None: there is none."""
    found = (_held(world, intent) for intent in _untaken(world.book, incident))
    return next((held for held in found if held is not None), None)


def _untaken(book: Book, incident: Incident) -> Iterator[Intent]:
    """Withheld steps that were not taken, or that failed and are tried again; the newest first."""
    for intent in reversed(book.intents_of(incident.id)):
        last = attempted_steps.last(book.planned(incident.id, intent.step))
        if intent.state is IntentState.WITHHELD and (last is None or last.state is IntentState.FAILED):
            yield intent


def _held(world: World, intent: Intent) -> HeldStep | None:
    stops = isinstance(intent.action, Requeue) and _stops(world.book, intent.action)
    proposal = Proposal(intent.incident_id, intent.step, intent.action, intent.reason, stops_running_job=stops)
    brake = brake_about(world, [b for _, b in sorted(world.book.brakes.items()) if b.holds], proposal)
    if brake is not None:
        return HeldStep(intent, brake, brake.reason)
    spent = unpaid(world, Purse(world), proposal)
    return HeldStep(intent, None, spent.text) if spent is not None else None


def _stops(book: Book, action: Requeue) -> bool:
    recovery = book.recovery_of(action.job, action.restarts)
    return recovery is not None and recovery.stops_running_job
