"""Every health check, whether it acts, and on which nodes that is otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from holdfast.api.deps import Api
from holdfast.api.guarded import READERS, guarded_router
from holdfast.api.shape import Essential, Shape
from holdfast.model.report import AgentView
from holdfast_checks.acting import Lists
from holdfast_checks.known import all_checks
from holdfast_checks.registry import Check


class CheckShape(Shape):
    """One check."""

    id: Annotated[str, Essential()]
    title: str
    severity: str = Field(description="The worst that it reports where it acts.")
    remedy: str = Field(description="What its worst finding calls for.")
    acts: bool = Field(description="Its findings count in full. False: it observes, they are warnings.")
    proven: bool = Field(description="It acts unless `observe_only` lists it; others observe until `act_on` does.")


class OtherNodeShape(Shape):
    """A node on which other checks act than the controller says."""

    node: Annotated[str, Essential()]
    act_on: list[str]
    observe_only: list[str]
    says: bool = Field(
        description="False: its agent is older and does not take the controller's lists; only its own agent.toml counts there."
    )


class ChecksShape(Shape):
    """The checks of this release, and which act."""

    act_on: list[str] = Field(description="`[checks] act_on` of the controller's settings.")
    observe_only: list[str]
    checks: list[CheckShape]
    others: list[OtherNodeShape] = Field(description="Nodes whose agents say otherwise, as of their last heartbeats.")


def checks_router(api: Api) -> APIRouter:
    router = guarded_router(api, "reading", *READERS)
    deps = api.deps

    @router.get("/v1/checks")
    async def checks() -> ChecksShape:
        """Every health check of this release, whether it acts, and the nodes on which that is otherwise."""
        return checks_shape(deps.acting, deps.agents.views().values())

    return router


def checks_shape(lists: Lists, agents: Iterable[tuple[AgentView, ...]]) -> ChecksShape:
    """``agents``: those of each node, the newest last."""
    heard = sorted((each[-1] for each in agents if each), key=lambda agent: agent.node)
    return ChecksShape(
        act_on=list(lists.act_on),
        observe_only=list(lists.observe_only),
        checks=[_check(check, lists) for check in all_checks().values()],
        others=[_other(agent) for agent in heard if agent.acting is None or not _same(agent.acting, lists)],
    )


def _check(check: Check, lists: Lists) -> CheckShape:
    return CheckShape(
        id=check.id,
        title=check.title,
        severity=check.severity.value,
        remedy=check.remedy.value,
        acts=check.acts(lists.act_on, lists.observe_only),
        proven=not check.observe,
    )


def _same(one: Lists, other: Lists) -> bool:
    return set(one.act_on) == set(other.act_on) and set(one.observe_only) == set(other.observe_only)


def _other(agent: AgentView) -> OtherNodeShape:
    lists = agent.acting or Lists()
    return OtherNodeShape(
        node=agent.node,
        act_on=list(lists.act_on),
        observe_only=list(lists.observe_only),
        says=agent.acting is not None,
    )
