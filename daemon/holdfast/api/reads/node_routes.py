"""One node in depth: its history, its health, its sheet for the vendor; and what operators note and order of it."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from holdfast.api.answers.shapes import MAX_ID
from holdfast.api.callers.auth import Role
from holdfast.api.deps import Api, ApiDeps
from holdfast.api.errors import ApiError, answers
from holdfast.api.guards.guarded import READERS, caller_of, guarded_router
from holdfast.api.reads.reading import Limit, OfIncident, SinceQuery
from holdfast.api.reads.spares import NodeName
from holdfast.api.requests.wire import clean
from holdfast.api.shown.history_shapes import (
    AllHealthShape,
    DrainOrder,
    LemonsShape,
    NodeHealthShape,
    NodeHistoryShape,
    NodeNote,
    NodeSheetShape,
    Ordered,
    ReleaseOrder,
)
from holdfast.api.shown.node_views import all_health_shape, health_shape, history_shape, lemons_shape, sheet_shape
from holdfast.decisions.common.node_drains import drained_by_others
from holdfast.decisions.common.slurm_view import fresh_view
from holdfast.model.book import World
from holdfast.model.ids import incident_id as new_id
from holdfast.model.incidents.incident import ABOUT_JOBS, Incident, IncidentState
from holdfast.model.operators.node_orders import NodeOrder, OrderVerb
from holdfast.model.slurm.cluster import Node
from holdfast.ports import Operation

CursorQuery = Annotated[
    int | None, Query(ge=1, le=MAX_ID, description="Only what is older: `next_cursor` of the answer before.")
]
_IN_REPAIR = frozenset({IncidentState.REPAIRING, IncidentState.VALIDATING})


def node_health_router(api: Api) -> APIRouter:
    """Before the routes of one node: `health` is no node's name here."""
    router = guarded_router(api, "reading", *READERS)
    deps, threads = api.deps, api.threads

    @router.get("/v1/nodes/health", responses=answers(503), response_model=AllHealthShape)
    async def all_health() -> Response:
        """One verdict on each node, compact, for other automation."""
        return await threads.render(lambda: all_health_shape(current_world(deps)))

    @router.get("/v1/nodes/{name}/health", responses=answers(404, 503), response_model=NodeHealthShape)
    async def health(name: NodeName) -> Response:
        """One verdict on the node, with its reason. Unknown and not evaluated are neither good nor bad news."""
        return await threads.render(lambda: health_shape(current_world(deps), name))

    return router


def node_history_router(api: Api) -> APIRouter:
    router = guarded_router(api, "reading", *READERS)
    deps, threads = api.deps, api.threads

    @router.get("/v1/nodes/{name}/history", responses=answers(404), response_model=NodeHistoryShape)
    async def history(
        name: NodeName, since: SinceQuery = None, cursor: CursorQuery = None, limit: Limit = 200
    ) -> Response:
        """The node's newest entries, oldest first: every drain and its end, machines, incidents, checks, jobs, notes."""
        return await threads.render(lambda: history_shape(deps, name, since, cursor, limit))

    @router.get("/v1/nodes/{name}/sheet", responses=answers(404), response_model=NodeSheetShape)
    async def sheet(name: NodeName, incident: OfIncident = None) -> Response:
        """What a vendor wants to know: machines and serials, what was found, what was tried. Without an incident: of the newest ten."""
        return await threads.render(lambda: sheet_shape(deps, name, incident))

    @router.get("/v1/lemons", response_model=LemonsShape)
    async def lemons() -> Response:
        """Nodes with a score, the worst first: each fault that counts, and until when."""
        return await threads.render(lambda: lemons_shape(deps.world(), deps.clock.now()))

    return router


def node_orders_router(api: Api) -> APIRouter:
    router = guarded_router(api, "operating", Role.OPERATOR)
    deps = api.deps

    async def operate(operation: Operation) -> None:
        await api.threads.write(deps.store.operate, operation, deps.clock.now())
        deps.wake()

    @router.post("/v1/nodes/{name}/notes", responses=answers(404))
    async def note(request: Request, name: NodeName, wanted: NodeNote) -> Ordered:
        """Put a note on record; it changes nothing else."""
        _known(deps, name)
        incident_id = incident_of(deps.world(), name)
        text = clean(wanted.text, 500)
        who = caller_of(request).name
        await operate(Operation("note_node", who, name, text, node=name, incident_id=incident_id, ticket=wanted.ticket))
        return Ordered(order_id="", text=f"noted on {name}", incident_id=incident_id)

    @router.post("/v1/nodes/{name}/drain", responses=answers(404, 409, 503))
    async def drain(request: Request, name: NodeName, wanted: DrainOrder) -> Ordered:
        """Drain the node as an operator's drain: jobs on it continue, and Holdfast never takes it back on its own."""
        world, node = shown_node(deps, name)
        if node.out_of_service and drained_by_others(world, node):
            by = f"{node.reason_user or 'another user'}: {node.reason or 'no reason given'}"
            raise ApiError(409, "conflict", f"{name} is out of service already by {by}; add a note: holdfast node note")
        order = new_order(deps, request, name, OrderVerb.DRAIN, wanted.reason, wanted.ticket)
        return await given(api, order, "drain_node", f"{name} is drained as: {order.slurm_reason}; jobs on it continue")

    @router.post("/v1/nodes/{name}/release", responses=answers(404, 409, 503))
    async def release(request: Request, name: NodeName, wanted: ReleaseOrder) -> Ordered:
        """Put a drained or DOWN node back, also one that Holdfast took out. While it is being repaired, the order has to say so."""
        world, node = shown_node(deps, name)
        if not node.out_of_service:
            raise ApiError(409, "conflict", f"{name} is in service already")
        repaired = _in_repair(world, name)
        if repaired is not None and not wanted.despite_repair:
            text = (
                f"{name} is under repair by incident {repaired.id} ({repaired.state.value}: {repaired.note or repaired.headline}); "
                "wait for it, or release it all the same with --despite-repair"
            )
            raise ApiError(409, "conflict", text)
        order = replace(
            new_order(deps, request, name, OrderVerb.RELEASE, wanted.note, wanted.ticket), over=node.given_reason
        )
        return await given(api, order, "release_node", f"{name} is put back into service")

    return router


async def given(api: Api, order: NodeOrder, verb: str, text: str) -> Ordered:
    """Put the order on record and wake the loop."""
    incident_id = incident_of(api.deps.world(), order.node)
    operation = Operation(
        verb,
        order.by,
        order.node,
        order.reason,
        order=order,
        node=order.node,
        incident_id=incident_id,
        ticket=order.ticket,
    )
    await api.threads.write(api.deps.store.operate, operation, api.deps.clock.now())
    api.deps.wake()
    return Ordered(order_id=order.id, text=text, incident_id=incident_id)


def current_world(deps: ApiDeps) -> World:
    """The loop's newest world with what agents have reported since, as of now. Raises ApiError 503 before the loop's first turn."""
    world = deps.world()
    if world is None:
        raise ApiError(503, "unavailable", "the controller has not read the cluster yet: ask again in some seconds")
    return replace(world, now=deps.clock.now(), agents=deps.agents.views())


def new_order(deps: ApiDeps, request: Request, name: str, verb: OrderVerb, reason: str, ticket: str) -> NodeOrder:
    now = deps.clock.now()
    number, who = new_id(now, secrets.randbits(15)), caller_of(request).name
    return NodeOrder(number, name, verb, now, who, clean(reason, 500), ticket)


def shown_node(deps: ApiDeps, name: str) -> tuple[World, Node]:
    """Raises ApiError 503 where Slurm's state is not current, 404 where Slurm does not show the node."""
    world = deps.world()
    view = fresh_view(replace(world, now=deps.clock.now())) if world is not None else None
    if world is None or view is None:
        raise ApiError(503, "unavailable", "Slurm does not answer: its state of the node is not known")
    if name not in view.nodes:
        raise ApiError(404, "not_found", f"Slurm knows no node {name}; GET /v1/nodes lists them")
    return world, view.nodes[name]


def _known(deps: ApiDeps, name: str) -> None:
    """Raises ApiError 404 for a node that nothing is known of."""
    world = deps.world()
    shown = world is not None and ((world.view is not None and name in world.view.nodes) or name in world.book.nodes)
    if not shown and name not in deps.agents.views():
        raise ApiError(404, "not_found", f"There is no node {name}; GET /v1/nodes lists them")


def incident_of(world: World | None, name: str) -> str:
    """The newest open incident that is about the node; empty: there is none."""
    mine = world.book.open_on(name) if world is not None else ()
    return next((i.id for i in reversed(mine) if i.kind not in ABOUT_JOBS), "")


def _in_repair(world: World, name: str) -> Incident | None:
    return next((i for i in world.book.open_on(name) if i.state in _IN_REPAIR and not i.acknowledged), None)
