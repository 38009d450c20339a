"""Notices of steps that have waited long for a budget: no operator would know that a node stays out of service for it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from holdfast.decisions.common import node_incidents
from holdfast.model.actions import steps
from holdfast.model.actions.action import IntentState, Notify, Proposal
from holdfast.model.book import World
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.notice import NoticeLevel, Topic

LONG = timedelta(minutes=30)
"""Until then a wait is not worth a call: most budgets have one left again soon, as an hour passes."""


def tell(world: World, waiting: Iterable[tuple[Proposal, str]]) -> list[Proposal]:
    """Notify an operator once of each step. ``waiting``: steps that a budget withholds now, and the reason."""
    return [told for proposal, why in waiting if (told := _notice(world, proposal, why)) is not None]


def _notice(world: World, proposal: Proposal, why: str) -> Proposal | None:
    incident = world.book.incidents.get(proposal.incident_id)
    told_already = incident is None or incident.state is IncidentState.AWAITING_HUMAN
    if incident is None or told_already or not node_incidents.acting(incident) or not _waits_long(world, proposal):
        return None
    step = steps.notify_budget(proposal.step)
    if not world.may_try(incident.id, step):
        return None
    subject = f"{incident.node} waits for a budget: {why}"
    minutes = LONG.total_seconds() / 60
    body = f"{incident.headline}\nThis step has waited for {minutes:.0f} min: {proposal.step.text} ({proposal.reason})."
    notify = Notify(subject, body, NoticeLevel.NEEDS_SOMEBODY, Topic.BUDGET_SPENT, (incident.node,))
    return Proposal(incident.id, step, notify, why, order=90)


def _waits_long(world: World, proposal: Proposal) -> bool:
    """Since it was first withheld, or since it was last tried."""
    mine = [i for i in world.book.intents_of(proposal.incident_id) if i.step == proposal.step]
    if not any(i.state is IntentState.WITHHELD for i in mine):
        return False
    return world.now - max(i.finished_at or i.planned_at for i in mine) > LONG
