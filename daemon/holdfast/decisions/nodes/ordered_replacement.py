"""Orders to replace a node's machine, in the incident that carries them out. Pure.

An order is about the machine that the operator saw, and about no drain but the one that it names; it ends where either is another one by
now (:mod:`holdfast.decisions.repair.dropped_orders`)."""

from __future__ import annotations

from dataclasses import replace

from holdfast.decisions.common import node_drains
from holdfast.decisions.common.node_policy import policy_of
from holdfast.decisions.nodes import slurm_drains
from holdfast.model.actions.action import Intent
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident
from holdfast.model.operators.node_orders import MachineOrder, NodeOrder
from holdfast.model.policies.policy import Mode
from holdfast.model.slurm.cluster import Node


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


def other_gpus(world: World, node: str, order: NodeOrder | MachineOrder) -> frozenset[str]:
    """GPUs of the machine that the order names which were not there when it was given: a board was exchanged. Empty: there are
    none, or it is not known. A GPU that is missing was not exchanged."""
    record = world.book.nodes.get(node)
    if record is None or not order.gpus or record.instance_id != order.instance_id:
        return frozenset()
    return record.gpu_uuids - order.gpus


def foreign_drain(world: World, node: Node, order: NodeOrder | MachineOrder) -> bool:
    """Whether an operator or another tool drained the node, and the order does not name that drain. Slurm's own drains are no one's."""
    if not node_drains.drained_by_others(world, node) or slurm_drains.recognised(world, node) is not None:
        return False
    return node.given_reason != order.over


def banned(world: World, node: str) -> str | None:
    """What the site's settings say against doing anything to the node, for people; None: nothing."""
    policy = policy_of(node, world)
    if policy.never_touch:
        return policy.why
    return f"observe mode ({policy.why})" if policy.mode is Mode.OBSERVE else None


def no_return(world: World, node: str) -> str | None:
    """Why Holdfast does not put the node of a dropped order back now, for people; None: it does."""
    paused = f"paused by {world.book.paused}" if world.book.paused is not None else None
    return banned(world, node) or paused


def dropped_for(incident: Incident, why: str) -> Incident:
    return replace(incident, order_dropped=why)
