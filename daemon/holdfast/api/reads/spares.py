"""The spare pool, and one node with its history, for those who may look."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from holdfast.api.answers.node_shapes import NodeStory, OutageShape, SpareShape, SparesShape
from holdfast.api.deps import Api
from holdfast.api.errors import ApiError, answers
from holdfast.api.guards.guarded import READERS, guarded_router
from holdfast.api.shown.views import node_shape
from holdfast.decisions.spares import spare_checks
from holdfast.decisions.spares.choose import busy_nodes, why_not_ready
from holdfast.decisions.spares.pool import spare_pool, wanted
from holdfast.model.background import Background, Lemon
from holdfast.model.book import NodeRecord, World
from holdfast.model.slurm.cluster import ClusterView

NodeName = Annotated[str, Path(pattern="^[A-Za-z0-9._-]{1,252}$", description="Name of a node in Slurm.")]
_NOT_SHOWN = "Slurm does not show such a node"


def spares_router(api: Api) -> APIRouter:
    router = guarded_router(api, "reading", *READERS)
    deps = api.deps

    @router.get("/v1/spares")
    async def spares() -> SparesShape:
        """The spare pool: each spare, ready or not and why, how many are wanted, and how that number comes about."""
        return spares_shape(deps.world())

    @router.get("/v1/nodes/{name}", responses=answers(404))
    async def node(name: NodeName) -> NodeStory:
        """One node with its history: outages, score, and what the last checks by order found."""
        world = deps.world()
        shown = node_shape(name, world, deps.agents.views(), deps.clock.now())
        if shown is None:
            raise ApiError(404, "not_found", f"There is no node {name}; GET /v1/nodes lists them")
        background = world.background if world is not None else Background()
        record = (world.book.nodes.get(name) if world is not None else None) or NodeRecord(name)
        lemon = background.lemons.get(name, Lemon(0))
        return NodeStory(
            node=shown,
            reasons=list(lemon.reasons),
            lemon_until=lemon.until,
            outages=[OutageShape.model_validate(o) for o in reversed(background.outages) if o.node == name],
            history_read_at=background.read_at,
            instance_id=record.instance_id,
            checked_at=record.checked_at,
            deep_at=record.deep_at,
            check_note=record.check_note,
        )

    return router


def spares_shape(world: World | None) -> SparesShape:
    """As of the control loop's last turn."""
    view = world.view if world is not None else None
    if world is None or view is None:
        text = "the control loop has not turned yet" if world is None else "Slurm does not answer"
        reservation = world.policy.spare_reservation if world is not None else ""
        return SparesShape(reservation=reservation, wanted=None, reasons=[text], ready=0, short_since=None, spares=[])
    number, busy = wanted(world), busy_nodes(view)
    tested = spare_checks.under_test(world)
    spares = [_spare(world, view, name, busy, tested) for name in spare_pool(world, view)]
    return SparesShape(
        reservation=world.policy.spare_reservation,
        wanted=number.number,
        reasons=list(number.reasons),
        ready=sum(s.ready for s in spares),
        short_since=world.background.short_since,
        spares=spares,
    )


def _spare(world: World, view: ClusterView, name: str, busy: frozenset[str], tested: frozenset[str]) -> SpareShape:
    record = world.book.nodes.get(name, NodeRecord(name))
    shown = view.nodes.get(name)
    why_not = why_not_ready(world, view, shown, busy) if shown is not None else _NOT_SHOWN
    lemon = world.background.lemon(name, world.now)
    why = [why_not, record.check_note, "a lemon: last choice" if lemon else "", "under test" if name in tested else ""]
    return SpareShape(
        node=name,
        ready=why_not is None,
        why="; ".join(filter(None, why)),
        under_test=name in tested,
        lemon=lemon,
        checked_at=record.checked_at,
        deep_at=record.deep_at,
    )
