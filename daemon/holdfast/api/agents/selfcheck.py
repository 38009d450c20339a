"""What an agent asks about itself: whether its token is good, its clock right, and when the controller last received a report from it."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request

from holdfast import __version__
from holdfast.api.callers.auth import Role
from holdfast.api.deps import Api
from holdfast.api.guards.guarded import caller_of, guarded_router
from holdfast.model.agents.report import WIRE_VERSION


class SelfShape(BaseModel):
    """The calling agent as this controller sees it."""

    node: str = Field(description="The node that the token is bound to.", examples=["n1"])
    leader: bool = Field(description="This controller leads.")
    version: str = Field(description="The controller's version.")
    wire_versions: list[int] = Field(description="Versions of messages that it takes.")
    time: str = Field(description="The controller's clock, UTC.")
    last_heard_s: float | None = Field(
        description="Seconds since the node's agent last reported; null: not since it started."
    )


def self_router(api: Api) -> APIRouter:
    router = guarded_router(api, "agents", Role.AGENT)

    @router.get("/v1/agent/self")
    async def about_me(request: Request) -> SelfShape:
        """What the controller knows of the calling agent. It changes nothing, and is no sign of life."""
        caller = caller_of(request)
        now = api.deps.clock.now()
        heard = [one.last_heard for one in api.deps.agents.views().get(caller.node or "", ())]
        return SelfShape(
            node=caller.node or "",
            leader=api.deps.leader(),
            version=__version__,
            wire_versions=list(range(max(1, WIRE_VERSION - 1), WIRE_VERSION + 1)),
            time=now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            last_heard_s=round((now - max(heard)).total_seconds(), 1) if heard else None,
        )

    return router
