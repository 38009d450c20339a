"""Orders to replace a node's machine, in the incident that carries them out. Pure.

An order is about the machine that the operator saw, and about no drain but the one that it names. Until the ladder has begun on it, it is
dropped where either is another one by now; from then on the ladder's own rules and proofs apply."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from holdfast.decisions.common import attempted_steps, node_drains
from holdfast.decisions.machines import serving_now
from holdfast.decisions.nodes import slurm_drains
from holdfast.model.actions import steps
from holdfast.model.actions.action import Intent, IntentState, Launch, Replace
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.incidents.transitions import Moved, close, remark
from holdfast.model.operators.node_orders import MachineOrder, NodeOrder
from holdfast.model.slurm.cluster import ClusterView, Node

_NOT_BEGUN = frozenset({IncidentState.OPEN, IncidentState.CONTAINED})
_BEGUN = frozenset({IntentState.STARTED, IntentState.DONE})


def takes_over(incident: Incident, node: Node) -> bool:
    """Whether Slurm shows the operator's drain that the incident's order names: word for word, of that user and time."""
    order = incident.ordered
    return order is not None and order.over is not None and node.given_reason == order.over


def of_an_order(world: World, intent: Intent) -> bool:
    """Whether the step was done for an order, and not for a fault."""
    incident = world.book.incidents.get(intent.incident_id)
    return incident is not None and incident.only_ordered


def other_machine(world: World, node: str, order: NodeOrder | MachineOrder) -> str | None:
    """The machine that serves the node in place of the one that the order names; None: none does, as far as is known."""
    record = world.book.nodes.get(node)
    serves = record.instance_id if record is not None else ""
    return serves if serves not in ("", order.instance_id) else None


def foreign_drain(world: World, node: Node, order: NodeOrder | MachineOrder) -> bool:
    """Whether an operator or another tool drained the node, and the order does not name that drain. Slurm's own drains are no one's."""
    if not node_drains.drained_by_others(world, node) or slurm_drains.recognised(world, node) is not None:
        return False
    return node.given_reason != order.over


def drop_void(world: World, view: ClusterView, incident: Incident) -> Moved | None:
    """Drop the order of an incident that is about something else by now, before the ladder has begun; None: it is not.

    Of an incident that the order alone opened, an undrained node is left as it is, and so is one that another operator drained."""
    order = incident.ordered
    if order is None or incident.state not in _NOT_BEGUN:
        return None
    node = view.nodes[incident.node]
    why = _void(world, node, incident, order)
    if why is None:
        return None
    dropped, text = dropped_for(incident, why), f"order of {order.by} to replace the machine dropped: {why}"
    untouched = incident.state is IncidentState.OPEN or not node_drains.drained_by_us(world, node)
    if incident.only_ordered and untouched:
        return close(dropped, world.now, text)
    return replace(dropped, note=text), [remark(dropped, world.now, text)]


def dropped_for(incident: Incident, why: str) -> Incident:
    return replace(incident, order_dropped=why)


def _void(world: World, node: Node, incident: Incident, order: MachineOrder) -> str | None:
    other = other_machine(world, node.name, order) or serving_now.successor(world, incident)
    if other is not None:
        return f"machine {other} serves {node.name} now, not {order.instance_id}, which was to be replaced"
    if foreign_drain(world, node, order):
        who = node.reason_user or "another user"
        return f"{who} drained {node.name} ({node.reason!r}): theirs; order it again with --over and that reason, if it is yours to end"
    for step in (steps.drain(node.name), steps.take_over_drain(order.id, node.name)):
        latest = attempted_steps.last(world.book.attempts(incident.id, step))
        if latest is not None and latest.state is IntentState.REFUSED and latest.planned_at >= order.at:
            return f"{latest.step.text} was refused: {latest.outcome}"
    return None


def ended(world: World, before: Incident, after: Incident) -> Incident:
    """The incident after its step, with the order dropped if it closes although no machine was replaced since the order."""
    if before.ordered is None or after.open or after.order_dropped or _replaced(world, after, before.ordered.at):
        return after
    return dropped_for(after, f"incident {after.id} ended without a replacement: {after.note}")


def _replaced(world: World, incident: Incident, since: datetime) -> bool:
    mine = (i for i in world.book.intents_of(incident.id) if isinstance(i.action, Launch | Replace))
    return any(i.state in _BEGUN and i.planned_at >= since for i in mine)
