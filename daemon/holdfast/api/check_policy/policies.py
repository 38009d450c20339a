"""The policy of checks: what counts where and who says so, and what another one would have done to the recorded findings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query

from holdfast.api.answers.policy_shapes import (
    NewWhatIf,
    PolicyChangeShape,
    PolicyShape,
    SaidShape,
    WhatIfFaultShape,
    WhatIfShape,
)
from holdfast.api.answers.shapes import EPOCH
from holdfast.api.callers.auth import Role
from holdfast.api.check_policy.agent_policies import never_off, older, refused, shown_nodes
from holdfast.api.deps import Api, ApiDeps
from holdfast.api.errors import ApiError
from holdfast.api.guards.guarded import READERS, guarded_router
from holdfast.api.shown.views import policy_shape_of
from holdfast.config.check_ids import check_ids
from holdfast.config.controller import policy_tables
from holdfast.decisions.common.check_policy import checks_for, said_everywhere, said_of_checks
from holdfast.decisions.incidents.what_if import WhatIfFault, policy_changes, what_if
from holdfast.model.errors import ConfigError
from holdfast.model.incidents.fleet import natural
from holdfast.model.policies.policy import Policy
from holdfast_checks.acting import ALL, CheckPolicy, Lists
from holdfast_checks.custom_guard import PREFIX
from holdfast_checks.known import all_checks

MOST_FINDINGS = 10_000
_SPAN = timedelta(days=30)
_NODE = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,251}$"
_OTHERS = (
    "not replayed: brakes, pauses, suppressions, maintenance, and what a node's own agent.toml says",
    "not stored, so not replayed: readings that were good or below a threshold, and checks that were off",
)


def policies_router(api: Api) -> APIRouter:
    reading = guarded_router(api, "reading", *READERS)
    operating = guarded_router(api, "operating", Role.OPERATOR)
    deps = api.deps

    @reading.get("/v1/policy")
    async def policy(
        node: Annotated[str | None, Query(pattern=_NODE, description="Of this node; none: of all.")] = None,
    ) -> PolicyShape:
        """The policy of checks in force: which act or observe, thresholds, who says so, and which agents go by another version."""
        return policy_shape(deps, node)

    @operating.post("/v1/checks/what-if")
    async def replayed(wanted: NewWhatIf) -> WhatIfShape:
        """Replay recorded findings with another policy: which nodes it would have drained that were not, and the reverse. Changes
        nothing."""
        return await api.threads.read(what_if_shape, deps, wanted)

    router = APIRouter()
    router.include_router(reading)
    router.include_router(operating)
    return router


def acts_by(check: str, policy: CheckPolicy) -> bool:
    """Whether a check acts by this policy alone, as agents weigh: a site's own check is a new one, what an agent says of itself acts."""
    lists = policy.lists
    if check in policy.off:
        return False
    known = all_checks().get(check)
    if known is not None:
        return known.acts(lists.act_on, lists.observe_only)
    new = check.startswith(PREFIX)
    return check not in lists.observe_only and (not new or ALL in lists.act_on or check in lists.act_on)


def policy_shape(deps: ApiDeps, name: str | None) -> PolicyShape:
    node = shown_nodes(deps).get(name) if name is not None else None
    agents = deps.agents.views().get(name or "", ())
    if name is not None and node is None and not agents:
        raise ApiError(404, "not_found", f"There is no node {name}; GET /v1/nodes lists them", "node")
    found = deps.policy.checks if name is None else checks_for(name, node, deps.policy)
    said = said_everywhere(deps.policy) if name is None else said_of_checks(name, node, deps.policy)
    world = deps.world()
    return PolicyShape(
        node=name,
        version=found.version,
        act_on=list(found.lists.act_on),
        observe_only=list(found.lists.observe_only),
        checks_off=list(found.off),
        thresholds=dict(found.thresholds),
        said=[SaidShape.model_validate(each) for each in said],
        policy=policy_shape_of(name, world) if name is not None and world is not None else None,
        agent_version=agents[-1].checks_version if agents else None,
        older=older(deps),
        refused=refused(deps),
        never_off=never_off(deps),
    )


def what_if_shape(deps: ApiDeps, wanted: NewWhatIf) -> WhatIfShape:
    """Raises ApiError 422 for tables or ids that are wrong."""
    now, nodes = deps.clock.now(), shown_nodes(deps)
    since = max(wanted.since or now - _SPAN, EPOCH)
    then = _other_policy(deps.policy, wanted)
    found = deps.store.findings(since=since, limit=MOST_FINDINGS + 1)
    replayed = found[:MOST_FINDINGS]
    faults = what_if(replayed, deps.policy, then, nodes, acts_by)
    changes = policy_changes(nodes, deps.policy, then)
    return WhatIfShape(
        since=since,
        until=now,
        replayed=len(replayed),
        more=len(found) > MOST_FINDINGS,
        faults=[_fault(each) for each in faults],
        changes=[PolicyChangeShape(node=name, lines=list(changes[name])) for name in sorted(changes, key=natural)],
        notes=[*_OTHERS, *_unplayed(deps.policy, then)],
    )


def _unplayed(now: Policy, then: Policy) -> Iterator[str]:
    said = [[each.checks.thresholds, *(one.thresholds for one in each.nodes)] for each in (now, then)]
    if said[0] != said[1]:
        yield "the changed thresholds are not replayed: findings are stored, not what was measured"


def _fault(fault: WhatIfFault) -> WhatIfFaultShape:
    return WhatIfFaultShape(
        node=fault.node,
        incident_id=fault.incident_id,
        at=fault.at,
        check=fault.check,
        code=fault.code,
        severity=fault.severity,
        remedy=fault.remedy,
        times=fault.times,
        before=fault.before.name.lower(),
        after=fault.after.name.lower(),
        why=fault.why,
    )


def _other_policy(policy: Policy, wanted: NewWhatIf) -> Policy:
    """The policy to compare with. Raises ApiError 422."""
    act_on = list(wanted.act_on)
    if wanted.tables is None and not (act_on or wanted.observe_only or wanted.checks_off):
        act_on = [ALL]
    try:
        then = policy if wanted.tables is None else policy_tables(wanted.tables, Path("controller.toml"))
        check_ids(act_on, "act_on", (ALL,))
        check_ids(wanted.observe_only, "observe_only")
        check_ids(wanted.checks_off, "checks_off")
    except ConfigError as error:
        raise ApiError(422, "invalid", str(error)[:500], "tables" if wanted.tables is not None else None) from None
    lists = then.checks.lists
    added = Lists((*lists.act_on, *act_on), (*lists.observe_only, *wanted.observe_only))
    off = (*then.checks.off, *wanted.checks_off)
    return replace(then, checks=replace(then.checks, lists=added, off=off))
