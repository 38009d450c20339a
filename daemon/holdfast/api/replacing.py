"""Orders of operators to replace a node's machine."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter
from starlette.requests import Request

from holdfast.api.callers.auth import Role
from holdfast.api.deps import Api, ApiDeps
from holdfast.api.errors import ApiError, answers
from holdfast.api.guards.guarded import guarded_router
from holdfast.api.reads.node_routes import given, new_order, shown_node
from holdfast.api.reads.spares import NodeName
from holdfast.api.shown.history_shapes import Ordered, ReplaceOrder
from holdfast.decisions.repair.replace_orders import OrderRefusal, OrderRefused, refused, waits_for
from holdfast.model.actions import steps
from holdfast.model.book import World
from holdfast.model.ids import UPKEEP
from holdfast.model.operators.node_orders import NodeOrder, OrderVerb
from holdfast.model.slurm.cluster import ClusterView, Node, NodeReason


def replacing_router(api: Api) -> APIRouter:
    router = guarded_router(api, "operating", Role.OPERATOR)
    deps = api.deps

    @router.post("/v1/nodes/{name}/replace", responses=answers(404, 409, 503))
    async def replace_machine(request: Request, name: NodeName, wanted: ReplaceOrder) -> Ordered:
        """Replace the node's machine: drained, its jobs run to their end, replaced, tested, returned. Of no other machine than this one."""
        orders = (await api.threads.read(deps.store.load_book, deps.clock.now())).node_orders
        world, view, node = _read(deps, name, orders)
        order = replace(
            new_order(deps, request, name, OrderVerb.REPLACE, wanted.reason, wanted.ticket),
            over=_drain_named(node, wanted.over),
            instance_id=wanted.machine or _machine_of(world, name),
            gpus=_gpus_of(world, name),
        )
        no = refused(world, view, order) or _again(world, order)
        if no is not None and no.why is not OrderRefusal.OBSERVE:
            raise ApiError(409, "conflict", no.text)
        return await given(api, order, "replace_node", no.text if no is not None else _text(world, view, order))

    return router


def _text(world: World, view: ClusterView, order: NodeOrder) -> str:
    begins = f"machine {order.instance_id} of {order.node} is replaced once no job holds the node"
    return "; ".join((begins, *waits_for(world, view, order)))


def _read(deps: ApiDeps, name: str, given: tuple[NodeOrder, ...]) -> tuple[World, ClusterView, Node]:
    """As :func:`shown_node`, with a reading of the provider; and with the orders that were given, of which the loop may not
    have read the last. Raises ApiError."""
    world, node = shown_node(deps, name)
    if world.view is None or world.book.provider is None:
        raise ApiError(
            503, "unavailable", "the provider has not been read yet: what it can replace is not known; ask again"
        )
    book = replace(world.book, node_orders=given)
    return replace(world, now=deps.clock.now(), book=book), world.view, node


def _drain_named(node: Node, over: str) -> NodeReason | None:
    """The drain that the order takes over. Raises ApiError 409 where Slurm shows another one, or none."""
    if not over:
        return None
    shown_so = node.reason == over  # rule prose: the operator names the drain by its text
    if not (node.out_of_service and shown_so):
        shown = f"Slurm shows {node.reason!r}" if node.out_of_service else "it is in service"
        raise ApiError(
            409, "conflict", f"{node.name} is not drained as {over!r}: {shown}; give its reason word for word", "over"
        )
    return node.given_reason


def _machine_of(world: World, name: str) -> str:
    record = world.book.nodes.get(name)
    return record.instance_id if record is not None else ""


def _gpus_of(world: World, name: str) -> frozenset[str]:
    record = world.book.nodes.get(name)
    return record.gpu_uuids if record is not None else frozenset()


def _again(world: World, order: NodeOrder) -> OrderRefused | None:
    """Another order of the node that the loop has not taken up yet."""
    waiting = [o for o in world.book.node_orders if o.node == order.node and o.due(order.at) and not _seen(world, o)]
    if not waiting:
        return None
    text = f"an order of {waiting[-1].by} for {order.node} ({waiting[-1].verb}) waits to be begun: see what comes of it, then order again"
    return OrderRefused(OrderRefusal.ORDERED_ALREADY, text)


def _seen(world: World, order: NodeOrder) -> bool:
    """Whether the loop has taken the order up, or dropped it."""
    mine = (steps.drain_for_operator, steps.release_for_operator)
    planned = (*(step(order.id, order.node) for step in mine), steps.notify_order(order.id))
    dealt_with = any(world.book.planned(UPKEEP, step) for step in planned)
    return dealt_with or any(i.has_taken(order.id) for i in world.book.incidents.values())
