"""The only routes that need no token; their status says it all."""

from __future__ import annotations

from fastapi import APIRouter

from holdfast.api.deps import Api
from holdfast.api.errors import ApiError, answers
from holdfast.model.errors import Unavailable

PING_EVERY_S = 1.0
"""Anybody may ask ``/readyz``, so the database is asked no more often than this."""


def health_router(api: Api) -> APIRouter:
    router = APIRouter(tags=["health"])
    store_health = _StoreHealth(api)

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @router.get("/livez", responses=answers(503))
    async def livez() -> dict[str, str]:
        """The control loop turns; 503 when it is late."""
        late = loop_late(api)
        if late:
            raise ApiError(503, "loop_late", late)
        return {"status": "ok"}

    @router.get("/readyz", responses=answers(503))
    async def readyz() -> dict[str, str]:
        """It leads, its loop decides, its database takes writes and an actor takes its steps; 503 with the reason otherwise."""
        problem = loop_late(api) or await store_health.problem() or writes_late(api) or api.deps.trouble()
        if problem is None and not api.deps.leader():
            problem = "standby: another controller leads"
        problem = problem or api.deps.untaken.problem()
        if problem:
            raise ApiError(503, "not_ready", problem)
        return {"status": "ok"}

    return router


def loop_late(api: Api) -> str | None:
    """Why the loop does not count as turning."""
    turned_s = api.deps.loop_turned_at()
    if turned_s is None:
        return "the control loop has not turned yet"
    late_s = api.deps.clock.monotonic_s() - turned_s
    return f"the control loop has not turned for {late_s:.0f} s" if late_s > api.deps.settings.loop_late_s else None


def writes_late(api: Api) -> str | None:
    """Why the store does not count as taking writes. Of a standby nothing is asked: it writes nothing."""
    committed_s, trouble = api.deps.committed_at(), api.deps.trouble()
    if committed_s is None or (trouble is None and not api.deps.leader()):
        return None
    late_s = api.deps.clock.monotonic_s() - committed_s
    if late_s <= api.deps.settings.write_late_s:
        return None
    return f"the store has taken no write for {late_s:.0f} s" + (f": {trouble}" if trouble else "")


class _StoreHealth:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._asked_s = float("-inf")
        self._problem: str | None = None

    async def problem(self) -> str | None:
        now_s = self._api.deps.clock.monotonic_s()
        if now_s - self._asked_s >= PING_EVERY_S:
            self._asked_s = now_s
            try:
                await self._api.threads.read(self._api.deps.store.ping)
                self._problem = None
            except Unavailable as error:
                self._problem = str(error)
        return self._problem
