"""End of a matter: whether what people were notified of is over. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.decisions.common.budgets import COUNTED
from holdfast.model.actions import steps
from holdfast.model.book import Book
from holdfast.model.conditions import Conditions
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.notice import Matter, NoticeLevel, Topic

_WHILE: Mapping[Topic, frozenset[IncidentState]] = {
    Topic.AWAITING_HUMAN: frozenset({IncidentState.AWAITING_HUMAN}),
    Topic.NO_MACHINE: frozenset({IncidentState.REPAIRING}),
    Topic.CANNOT_FENCE: frozenset({IncidentState.OPEN, IncidentState.CONTAINED}),
}
"""States of the incident in which the matter lasts; of any other topic: until the incident is closed."""


def is_over(book: Book, matter: Matter, conditions: Conditions | None = None) -> bool | None:
    """Whether it is over; None: the state snapshot does not say, or it is news, which has no end. ``conditions``: None: none are on
    record."""
    if matter.level is not NoticeLevel.NEEDS_SOMEBODY:
        return None
    if matter.condition:
        return None if conditions is None else matter.condition not in conditions.keys
    if matter.topic is Topic.BRAKE:
        return not any(
            steps.notify_brake(brake.name, brake.tripped_at).target == matter.target and brake.released_at is None
            for brake in book.brakes.values()
        )
    if not matter.incident_id or matter.topic is Topic.HANGS_LIMITED:
        return None
    incident = book.incidents.get(matter.incident_id)
    if incident is None or not incident.open:
        return True
    if matter.topic is Topic.BUDGET_SPENT:
        return _step_taken(book, matter)
    lasts = _WHILE.get(matter.topic)
    return lasts is not None and incident.state not in lasts


def _step_taken(book: Book, matter: Matter) -> bool:
    """Whether the step that waited for a budget is under way, or done."""
    taken = (i for i in book.intents_of(matter.incident_id) if i.state in COUNTED)
    return any(steps.notify_budget(i.step).target == matter.target for i in taken)
