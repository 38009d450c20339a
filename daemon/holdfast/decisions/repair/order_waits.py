"""What holds up an operator's order to replace a machine: brakes and budgets, and the notice if a node is out of service for it. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.decisions.common import attempted_steps, brake_scopes, node_drains, slurm_view
from holdfast.decisions.common.budgets import Purse, why_kept_for_faults, why_spent
from holdfast.decisions.common.part import Part
from holdfast.decisions.nodes import hands_off, ordered_replacement
from holdfast.decisions.repair import repair_progress
from holdfast.model.actions import steps
from holdfast.model.actions.action import Action, Launch, Notify, Proposal, Replace, Terminate
from holdfast.model.book import BrakeKind, World
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.notice import NoticeLevel, Topic
from holdfast.model.operators.node_orders import MachineOrder
from holdfast.model.slurm.cluster import ClusterView

LONGEST_UNTOLD = timedelta(minutes=15)
"""A node that is out of service for an order and waits for longer is not what its operator expects."""
_APART = (BrakeKind.TASK_DRAINS, BrakeKind.PLANNED_STOPS)
"""Brakes that hold what users and agents' notices cause."""


def held_by(world: World, action: Action, incident_id: str = "") -> list[str]:
    """Brakes that hold the node, and budgets that are too short for the step of an order, for people. ``incident_id``: of the order; empty:
    it has none yet."""
    node = action.target.node or ""
    holding = [b for _, b in sorted(world.book.brakes.items()) if b.holds and b.kind not in _APART]
    found = [f"brake {b.name!r} holds (holdfast release {b.name})" for b in brake_scopes.about(world, holding, (node,))]
    short = Purse(world).short_for_order(action, incident_id)
    spent = Purse(world).take(action) if not short else None
    return [*found, *map(why_kept_for_faults, short), *([why_spent(spent)] if spent is not None else [])]


def tell_of_waiting_orders(world: World) -> Part:
    """A notice, once, for each order whose node is drained and waits for a brake or a budget for longer than :data:`LONGEST_UNTOLD`."""
    view = slurm_view.fresh_view(world)
    if view is None or world.book.paused is not None:
        return Part()
    found = (_of(world, view, i) for i in world.book.open_incidents() if i.only_ordered and not i.acknowledged)
    return Part(tuple(p for p in found if p is not None))


def _of(world: World, view: ClusterView, incident: Incident) -> Proposal | None:
    order, node = incident.order, view.nodes.get(incident.node)
    if order is None or node is None or not node_drains.drained_by_us(world, node):
        return None
    if hands_off.holds(world, incident) is not None or ordered_replacement.no_return(world, incident.node) is not None:
        return None
    step = steps.notify_order_waits(order.id)
    waits = _next(world, incident)
    if waits is None or world.now - waits[1] <= LONGEST_UNTOLD or not world.may_try(incident.id, step):
        return None
    held = held_by(world, waits[0], incident.id)
    return Proposal(incident.id, step, _notice(order, held), held[0], order=90) if held else None


def _notice(order: MachineOrder, held: list[str]) -> Notify:
    minutes = LONGEST_UNTOLD.total_seconds() / 60
    subject = (
        f"{order.node} is drained for the order of {order.by}, and waits for more than {minutes:.0f} min: {held[0]}"
    )
    body = "\n".join((subject, *held[1:], f"Ordered by {order.who_and_why}, of machine {order.instance_id}."))
    return Notify(subject, body, NoticeLevel.NEEDS_SOMEBODY, Topic.ORDER_WAITS, (order.node,))


def _next(world: World, incident: Incident) -> tuple[Action, datetime] | None:
    """The step at a machine that is due for the order and was not begun, and since when it is due; None: there is none."""
    node, since = incident.node, incident.state_since or incident.opened_at
    if incident.state is IncidentState.REPAIRING:
        if incident.ordered is None or repair_progress.attempts(world, incident):
            return None
        if repair_progress.in_place(world, incident):
            return Replace(node, incident.serving_id, "", "", frozenset(), None), since
        return Launch(node, "", incident.serving_id), since
    if incident.state is not IncidentState.VALIDATING or incident.validated_at is None:
        return None
    launched = attempted_steps.done(repair_progress.attempts(world, incident))
    ends = world.book.attempts(incident.id, steps.terminate(incident.instance_id))
    if launched is None or not isinstance(launched.action, Launch) or ends:
        return None
    return Terminate(incident.instance_id, node), incident.validated_at
