"""The only routes that need no token; their status says it all."""

from __future__ import annotations

from fastapi import APIRouter

from holdfast.api.deps import Api
from holdfast.api.errors import ApiError, answers, answers_in_full
from holdfast.api.reads.status import StoreHealth, vitals
from holdfast.decisions.parts import loop_late, parts_of
from holdfast.model.parts import not_ready

SAID_FOR_S = 1.0
"""Anyone may ask, and each answer reads the state of all agents: 10 ms with 2,000 nodes, on the event loop."""


class _Readiness:
    """What ``/readyz`` says: found out once a second, for all who ask."""

    def __init__(self, api: Api, health: StoreHealth) -> None:
        self._api = api
        self._health = health
        self._found_s = float("-inf")
        self._problem: str | None = None

    async def problem(self) -> str | None:
        """Why this controller is not ready; None: it is."""
        ping_problem = await self._health.problem()
        now_s = self._api.deps.clock.monotonic_s()
        if now_s - self._found_s >= SAID_FOR_S:
            self._problem = not_ready(parts_of(vitals(self._api.deps, ping_problem)))
            self._found_s = now_s
        return self._problem


def health_router(api: Api, health: StoreHealth) -> APIRouter:
    router, readiness = APIRouter(tags=["health"]), _Readiness(api, health)

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @router.get("/livez", responses=answers_in_full(503))
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
        problem = await readiness.problem()
        if problem:
            raise ApiError(503, "not_ready", problem)
        return {"status": "ok"}

    return router
