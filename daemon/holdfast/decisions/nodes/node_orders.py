"""Operators' orders to drain and to release nodes become steps; those to replace a machine become incidents
(:mod:`holdfast.decisions.repair.replace_orders`). Pure.

They are an operator's will: no brake, no pause and no mode holds them, as none holds scontrol. A released node whose incident is open is
treated as one that the operator resumed in Slurm."""

from __future__ import annotations

from holdfast.decisions.common.part import Part
from holdfast.model.actions import steps
from holdfast.model.actions.action import Proposal
from holdfast.model.book import World
from holdfast.model.ids import UPKEEP
from holdfast.model.operators.node_orders import DrainForOperator, NodeOrder, OrderVerb, ReleaseForOperator


def carry_out_orders(world: World) -> Part:
    """A step for each order that is due: once, and again while Slurm cannot be reached. Of a node's orders the newest alone counts."""
    newest = {order.node: order for order in world.book.node_orders}
    due = [order for order in newest.values() if order.due(world.now)]
    proposals = (_step(order) for order in due)
    return Part(tuple(p for p in proposals if p is not None and world.may_try(UPKEEP, p.step)))


def _step(order: NodeOrder) -> Proposal | None:
    why = f"ordered by {order.by}: {order.reason}" + (f" (ticket {order.ticket})" if order.ticket else "")
    if order.verb is OrderVerb.DRAIN:
        action = DrainForOperator(order.node, order.slurm_reason)
        return Proposal(UPKEEP, steps.drain_for_operator(order.id, order.node), action, why, order=1)
    if order.verb is OrderVerb.RELEASE and order.over is not None:
        release = ReleaseForOperator(order.node, order.over)
        return Proposal(UPKEEP, steps.release_for_operator(order.id, order.node), release, why, order=1)
    return None
