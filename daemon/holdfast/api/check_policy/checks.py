"""Every health check, whether it acts, and on which nodes that is otherwise."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from holdfast.api.answers.shape import Essential, Shape
from holdfast.api.check_policy.agent_policies import never_off, newest_agents, older, refused, shown_nodes
from holdfast.api.deps import Api, ApiDeps
from holdfast.api.guards.guarded import READERS, guarded_router
from holdfast.decisions.common.check_policy import checks_for
from holdfast.model.agents.report import AgentView
from holdfast.model.incidents.fleet import natural
from holdfast_checks.acting import CheckPolicy, Lists
from holdfast_checks.known import all_checks
from holdfast_checks.registry import Check


class CheckShape(Shape):
    """One check."""

    id: Annotated[str, Essential()]
    title: str
    severity: str = Field(description="The worst that it reports where it acts.")
    remedy: str = Field(description="What its worst finding calls for.")
    acts: bool = Field(description="Its findings count in full. False: it observes, they are warnings.")
    off: bool = Field(default=False, description="It is switched off on all nodes: it is not run.")
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
    checks_off: list[str] = Field(default=[], description="Checks that are not run on any node.")
    checks: list[CheckShape]
    thresholds: dict[str, float] = Field(
        default={}, description="`[checks] thresholds` of the controller's settings, by `TABLE.KEY`."
    )
    others: list[OtherNodeShape] = Field(
        description="Nodes whose agents say otherwise than the policy of their node, as of their last heartbeats."
    )
    older: list[str] = Field(
        default=[], description="Nodes whose agents go by another version of the policy than theirs now."
    )
    refused: dict[str, str] = Field(
        default={}, description="Node → why its agent refused the policy; the one before holds there."
    )
    never_off: list[str] = Field(
        default=[],
        description="Nodes whose agents are of a release that cannot switch checks off: what these find there counts as a warning.",
    )


def checks_router(api: Api) -> APIRouter:
    router = guarded_router(api, "reading", *READERS)
    deps = api.deps

    @router.get("/v1/checks")
    async def checks() -> ChecksShape:
        """Every health check of this release, whether it acts, and the nodes on which that is otherwise."""
        return checks_shape(deps)

    return router


def checks_shape(deps: ApiDeps) -> ChecksShape:
    policy, nodes = deps.policy.checks, shown_nodes(deps)
    lists = policy.lists
    return ChecksShape(
        act_on=list(lists.act_on),
        observe_only=list(lists.observe_only),
        checks_off=list(policy.off),
        checks=[_check(check, policy) for check in all_checks().values()],
        thresholds=dict(policy.thresholds),
        others=[
            _other(agent)
            for agent in sorted(newest_agents(deps), key=lambda agent: natural(agent.node))
            if agent.acting is None
            or not _same(agent.acting, checks_for(agent.node, nodes.get(agent.node), deps.policy).lists)
        ],
        older=older(deps),
        refused=refused(deps),
        never_off=never_off(deps),
    )


def _check(check: Check, policy: CheckPolicy) -> CheckShape:
    return CheckShape(
        id=check.id,
        title=check.title,
        severity=check.severity.value,
        remedy=check.remedy.value,
        acts=check.id not in policy.off and check.acts(policy.lists.act_on, policy.lists.observe_only),
        off=check.id in policy.off,
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
