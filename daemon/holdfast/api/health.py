"""The only routes that need no token; their status says it all."""

from __future__ import annotations

from fastapi import APIRouter

from holdfast.api.deps import Api
from holdfast.api.errors import ApiError, answers
from holdfast.api.status import StoreHealth, vitals
from holdfast.controller.parts import loop_late, parts_of
from holdfast.model.parts import not_ready


def health_router(api: Api, health: StoreHealth) -> APIRouter:
    router = APIRouter(tags=["health"])

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @router.get("/livez", responses=answers(503))
    async def livez() -> dict[str, str]:
        """The control loop turns; 503 when it is late."""
        deps = api.deps
        late = loop_late(deps.loop_turned_at(), deps.clock.monotonic_s(), deps.settings.loop_late_s)
        if late:
            raise ApiError(503, "loop_late", late)
        return {"status": "ok"}

    @router.get("/readyz", responses=answers(503))
    async def readyz() -> dict[str, str]:
        """It leads, its loop decides, its database takes writes and its actor works; 503 with the reason otherwise."""
        problem = not_ready(parts_of(vitals(api.deps, await health.problem())))
        if problem:
            raise ApiError(503, "not_ready", problem)
        return {"status": "ok"}

    return router
