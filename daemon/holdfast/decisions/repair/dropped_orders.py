"""The end of orders to replace a node's machine that are not carried out: why, and what becomes of the node. Pure.

Until a launch or an exchange has begun, an order is dropped where it is about something else by now: another machine, other GPUs in it,
another operator's drain; and where the site's settings forbid it meanwhile. A healthy node that was drained for it goes back."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.decisions.common import attempted_steps, node_drains
from holdfast.decisions.machines import serving_now
from holdfast.decisions.nodes import ordered_replacement
from holdfast.decisions.repair import repair_progress
from holdfast.model.actions import steps
from holdfast.model.actions.action import IntentState, Launch, Replace
from holdfast.model.actions.order_progress import NOT_BEGUN, replacement_begun
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.incidents.transitions import Moved, close, move, remark
from holdfast.model.operators.node_orders import MachineOrder
from holdfast.model.slurm.cluster import ClusterView, Node

_S = IncidentState
LONGEST_PAUSE = timedelta(days=1)  # rule undeclared-window: of open incidents, which are loaded whatever their age
"""An order that a pause has held up for longer is dropped: its operator has forgotten the node that is drained for it."""
_BEGUN = frozenset({IntentState.STARTED, IntentState.DONE})


def follow(world: World, view: ClusterView, incident: Incident) -> Moved | None:
    """Drop the order of an incident that is about something else by now, and release the node of one that is dropped. None: neither.

    Of an incident that the order alone opened, an undrained node is left as it is, and so is one that another operator drained."""
    order, node = incident.ordered, view.nodes[incident.node]
    if order is None and incident.only_ordered and not _exchanged(world, incident):
        return _let_go(world, view, incident)  # what was launched as the order was withdrawn is given back
    if order is None or incident.state not in NOT_BEGUN:
        return None
    if replacement_begun(incident, world.book.intents_of(incident.id)):
        return None
    why = _void(world, node, incident, order)
    if why is None:
        return None
    dropped = ordered_replacement.dropped_for(incident, why)
    text = f"order of {order.by} to replace the machine dropped: {why}"
    said = remark(dropped, world.now, text)
    if dropped.only_ordered and incident.state is _S.CONTAINED and not node_drains.drained_by_us(world, node):
        return close(dropped, world.now, text)
    gone = _let_go(world, view, dropped)
    return (gone[0], [said, *gone[1]]) if gone is not None else (replace(dropped, note=text), [said])


def _let_go(world: World, view: ClusterView, incident: Incident) -> Moved | None:
    """The node of a dropped order: never drained, it is left; about to be replaced, it proves itself first. None: it is out, or is being
    drained, and the ladder returns it (:func:`holdfast.decisions.repair.ladder.choose`); or nothing may be done to it now."""
    text = f"the order is dropped: {incident.order_dropped}"
    if incident.state is _S.OPEN:
        untouched = incident.only_ordered and not _being_drained(world, view, incident)
        return close(incident, world.now, text) if untouched else None
    if incident.state is not _S.REPAIRING or ordered_replacement.no_return(world, incident.node) is not None:
        return None
    again = replace(repair_progress.attempt_over(incident), rung="", validated_at=None)
    order = incident.order
    if incident.only_ordered and order is not None and order.over is not None:  # whoever drained it had a reason
        return move(again, _S.AWAITING_HUMAN, world.now, text)
    return move(again, _S.VALIDATING, world.now, f"{text}; it is tested, then returned")


def _exchanged(world: World, incident: Incident) -> bool:
    """Whether the machine is exchanged in place by now, or may be: what comes of it is tested as after any exchange."""
    tries = world.book.attempts(incident.id, steps.replace(incident.node, incident.repair_attempt))
    return any(i.state in _BEGUN for i in tries)


def _being_drained(world: World, view: ClusterView, incident: Incident) -> bool:
    node = view.nodes[incident.node]
    latest = attempted_steps.last(world.book.attempts(incident.id, steps.drain(incident.node)))
    if node_drains.drained_by_us(world, node) or (latest is not None and not latest.settled):
        return True
    if latest is None or latest.state is not IntentState.DONE or latest.finished_at is None:
        return False
    return view.read_at - latest.finished_at <= node_drains.VIEW_LAG


def _void(world: World, node: Node, incident: Incident, order: MachineOrder) -> str | None:
    return _forbidden(world, node, order) or _other_gpus(world, node, order) or _overtaken(world, node, incident, order)


def _forbidden(world: World, node: Node, order: MachineOrder) -> str | None:
    """What the site's settings, or a long pause, say against an order that was given before."""
    paused_at = world.book.paused_at
    if (ban := ordered_replacement.banned(world, node.name)) is not None:
        out = node_drains.drained_by_us(world, node)
        back = f"; {node.name} stays drained: resume it in Slurm, or it returns once that ends" if out else ""
        return f"{ban}{back}"
    since = max(paused_at, order.at) if paused_at is not None else order.at
    if world.book.paused is not None and world.now - since > LONGEST_PAUSE:
        return f"Holdfast is paused for more than a day, by {world.book.paused}"
    return None


def _other_gpus(world: World, node: Node, order: MachineOrder) -> str | None:
    new = sorted(ordered_replacement.other_gpus(world, node.name, order))
    if not new:
        return None
    return (
        f"machine {order.instance_id} of {node.name} has other GPUs than when it was ordered ({len(new)} new, {new[0]}): "
        "a board was exchanged; order it again if this one is to go"
    )


def _overtaken(world: World, node: Node, incident: Incident, order: MachineOrder) -> str | None:
    """Another machine, another drain, or a drain that was refused; while it is repaired, the ladder sees to these."""
    if incident.state is _S.REPAIRING:
        return None
    other = ordered_replacement.other_machine(world, node.name, order) or serving_now.successor(world, incident)
    if other is not None:
        return f"machine {other} serves {node.name} now, not {order.instance_id}, which was to be replaced"
    if ordered_replacement.foreign_drain(world, node, order):
        who = node_drains.who_drained(world, node)
        return f"{who} drained {node.name} ({node.reason!r}): theirs; order it again with --over and that reason, if it is yours to end"
    for step in (steps.drain(node.name), steps.take_over_drain(order.id, node.name)):
        latest = attempted_steps.last(world.book.attempts(incident.id, step))
        if latest is not None and latest.state is IntentState.REFUSED and latest.planned_at >= order.at:
            return f"{latest.step.text} was refused: {latest.outcome}"
    return None


def ended(world: World, before: Incident, after: Incident) -> Incident:
    """The incident after its step, with the order dropped if it closes although no machine was replaced since the order. Where the node
    serves, an operator has put it back, and no one has to act."""
    if before.ordered is None or after.open or after.order_dropped or _replaced(world, after, before.ordered.at):
        return after
    why = f"incident {after.id} ended without a replacement: {after.note}"
    node = world.view.nodes.get(after.node) if world.view is not None else None
    serves = node is not None and not node.out_of_service
    return replace(ordered_replacement.dropped_for(after, why), order_withdrawn=serves)


def _replaced(world: World, incident: Incident, since: datetime) -> bool:
    mine = (i for i in world.book.intents_of(incident.id) if isinstance(i.action, Launch | Replace))
    return any(i.state in _BEGUN and i.planned_at >= since for i in mine)
