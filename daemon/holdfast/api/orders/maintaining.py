"""Maintenance windows: nodes that operators take out of Holdfast's hands for a time."""

from __future__ import annotations

import secrets
from datetime import timedelta

from fastapi import APIRouter
from starlette.requests import Request

from holdfast.api.answers.operator_shapes import Done, MaintenanceEnd, NewMaintenance, WindowShape, WindowsShape
from holdfast.api.callers.auth import Role
from holdfast.api.deps import Api
from holdfast.api.errors import ApiError, answers
from holdfast.api.guards.guarded import READERS, caller_of, guarded_router
from holdfast.api.requests.wire import clean
from holdfast.model.ids import incident_id as new_id
from holdfast.model.operators.maintenance import Window
from holdfast.model.slurm.hostlist import expand
from holdfast.ports import Operation

_FEW = 5
"""At most this many unknown names are listed in an answer."""


def maintaining_router(api: Api) -> APIRouter:
    router = guarded_router(api, "operating", Role.OPERATOR)

    def known(text: str) -> tuple[str, ...]:
        """Raises Rejected, ApiError."""
        nodes = expand(text)
        world = api.deps.world()
        if world is None or world.view is None:
            raise ApiError(503, "unavailable", "Slurm does not answer: the nodes' names cannot be checked")
        unknown = [name for name in nodes if name not in world.view.nodes]
        if unknown:
            more = f" and {len(unknown) - _FEW} more" if len(unknown) > _FEW else ""
            raise ApiError(404, "not_found", f"Slurm knows no node {', '.join(unknown[:_FEW])}{more}", "nodes")
        return nodes

    @router.post("/v1/maintenance", responses=answers(404, 409, 503))
    async def maintain(request: Request, wanted: NewMaintenance) -> WindowShape:
        """Keep hands off nodes for a time, from now on: recorded, nothing is done. Slurm starts no job there (a MAINT reservation)."""
        now, nodes = api.deps.clock.now(), known(wanted.nodes)
        until = now + timedelta(hours=wanted.hours)
        window = Window(
            new_id(now, secrets.randbits(15)), nodes, now, until, caller_of(request).name, clean(wanted.why, 500)
        )
        text = f"until {until:%Y-%m-%d %H:%M} UTC: {window.why}"
        order = Operation("maintain", window.by, wanted.nodes, text, window=window)
        await api.threads.write(api.deps.store.operate, order, now)
        api.deps.wake()
        return WindowShape.model_validate(window)

    @router.post("/v1/maintenance/end", responses=answers(404, 409))
    async def end(request: Request, wanted: MaintenanceEnd) -> Done:
        """End the maintenance of these nodes now: what is still wrong on them is acted upon."""
        order = Operation("end_maintenance", caller_of(request).name, wanted.nodes, nodes=expand(wanted.nodes))
        await api.threads.write(api.deps.store.operate, order, api.deps.clock.now())
        api.deps.wake()
        return Done()

    return router


def windows_router(api: Api) -> APIRouter:
    router = guarded_router(api, "reading", *READERS)

    @router.get("/v1/maintenance")
    async def windows() -> WindowsShape:
        """The maintenance windows that operators have ordered, and until when."""
        now = api.deps.clock.now()
        book = await api.threads.read(api.deps.store.load_book, now)
        held = sorted((w for w in book.windows if w.holds(now)), key=lambda each: (each.until, each.id))
        return WindowsShape(windows=[WindowShape.model_validate(each) for each in held])

    return router
