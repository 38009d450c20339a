"""What agents call: reports (durable), heartbeats (memory only) and orders (a long poll)."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast.api.callers.auth import Principal, Role
from holdfast.api.callers.quota import Load
from holdfast.api.counters import ApiCounters
from holdfast.api.deps import Api, ApiDeps
from holdfast.api.errors import ApiError, answers
from holdfast.api.requests import examples
from holdfast.api.requests.body import parse_object, read_body
from holdfast.api.requests.convert import Notes, to_report
from holdfast.api.requests.wire import HeartbeatBody, Items, ReportBody, check_version, clean, parse, parse_items
from holdfast.controller.observing.agents import Hello
from holdfast.controller.observing.claims import ShownJobs
from holdfast.decisions.common.check_policy import checks_for
from holdfast.decisions.common.node_policy import policy_for
from holdfast.decisions.nodes.job_gate import closed_by
from holdfast.model.actions.action import Intent, SendOrder
from holdfast.model.agents.report import Report
from holdfast.model.book import World
from holdfast.model.policies.policy import Mode, Policy
from holdfast.model.slurm.cluster import Node
from holdfast_checks.acting import Lists

log = logging.getLogger(__name__)

HEARTBEAT_LIMIT_BYTES = 1 << 16
MAX_WAIT_S = 60.0
_ORDERS_BYTES = 512 * 1024
"""Orders in one answer; an agent reads none of more than twice as much (``agent/sending/answers.py``)."""
STANDBY = b'{"leader":false}'


def ingest_router(api: Api, counters: ApiCounters) -> APIRouter:
    router = APIRouter(tags=["agents"])
    ingest = _Ingest(api, counters)

    @router.post("/v1/reports", openapi_extra=examples.REPORT, responses=answers(400, 401, 403, 413, 422, 429, 503))
    async def reports(request: Request) -> Response:
        """Store a report for good: 200 means durable; the same again answers `duplicate: true` and changes nothing."""
        return await ingest.report(request)

    @router.post("/v1/heartbeats", openapi_extra=examples.HEARTBEAT, responses=answers(400, 401, 403, 413, 422, 429))
    async def heartbeats(request: Request) -> Response:
        """Say that the agent is alive. Touches memory only."""
        return await ingest.heartbeat(request)

    @router.get("/v1/orders", openapi_extra=examples.ORDERS, responses=answers(401, 403, 422, 429, 503))
    async def orders(request: Request) -> Response:
        """Wait for orders: answers at once when there is one, else after `wait_s` with an empty list."""
        return await ingest.orders(request)

    return router


class _Ingest:
    def __init__(self, api: Api, counters: ApiCounters) -> None:
        self._api = api
        self._deps = api.deps
        self._counters = counters
        self._shown = ShownJobs()

    async def report(self, request: Request) -> Response:
        caller = await self._api.auth.caller(request, Role.AGENT)
        self._count(caller, {Load.REPORTS: 1, Load.BYTES: 0})
        content = await read_body(request)
        self._count(caller, {Load.BYTES: len(content)})
        message = parse_object(content)
        received_at = self._deps.clock.now()
        check_version(message)
        body = parse(ReportBody, message)
        _own_node(caller.node, body.node)
        self._count(caller, _loads(body.items))
        items = parse_items(body.items)
        report, notes = to_report(body, items.taken, received_at)
        self._note(report, notes, items)
        shown = self._shown.on(self._deps.world(), report.node) if report.statements else None
        accepted = await self._api.threads.durable(lambda: self._deps.store.accept_soon(report, shown))
        hello = Hello(report.node, report.instance_id, report.boot_id, report.agent_version)
        self._deps.agents.heard(hello, received_at, self._deps.clock.monotonic_s())
        if not accepted.duplicate:
            self._deps.wake()
        self._counters.report(report, accepted)
        answer = {"accepted": True, "duplicate": accepted.duplicate, "out_of_order": accepted.out_of_order}
        return JSONResponse(answer | ({"refused": [each.shown for each in items.refused]} if items.refused else {}))

    async def heartbeat(self, request: Request) -> Response:
        caller = await self._api.auth.caller(request, Role.AGENT)
        self._count(caller, {Load.HEARTBEATS: 1})
        message = parse_object(await read_body(request, HEARTBEAT_LIMIT_BYTES))
        check_version(message)
        body = parse(HeartbeatBody, message)
        _own_node(caller.node, body.node)
        hello = Hello(
            node=body.node,
            instance_id=body.instance_id,
            boot_id=body.boot_id,
            agent_version=body.agent_version,
            interval_s=body.interval_s,
            wall_time=_time(body.wall_time),
            all_ok=body.all_ok,
            failing=body.failing,
            fabric_silent_s=body.fabric_silent_s,
            authorities=body.authorities,
            acting=None if body.act_on is None else Lists(body.act_on, body.observe_only or ()),
            checks_version=body.checks_version,
            checks_off=body.checks_off,
            checks_refused=body.checks_refused,
            gres=body.gres,
            gres_problem=body.gres_problem,
            set_aside=body.set_aside,
            set_aside_s=body.set_aside_s,
            words_wait_s=body.words_wait_s,
        )
        if self._deps.agents.heard(hello, self._deps.clock.now(), self._deps.clock.monotonic_s()):
            self._deps.wake()
        self._counters.heartbeats.inc()
        return self._beaten(body.node, body.checks_version)

    def _beaten(self, node: str, has: str | None) -> Response:
        """The answer to a heartbeat: who leads, whether jobs are to be kept off the node, which others it watches, which
        checkpoint directories it reads, its policy of checks where it has another one, and its pace. ``has``: version of the policy that
        it has; None: its release knows of none and is given the lists each time."""
        if not self._deps.leader():
            return Response(STANDBY, media_type="application/json")
        world = self._deps.world()
        incident = None if world is None else closed_by(world, node, self._deps.clock.now())
        told: dict[str, object] = {"leader": True}
        if (policy := given_checks(node, _node_of(world, node), self._deps.policy, has)) is not None:
            told["checks"] = policy
        if incident is not None:
            told["keep_off"] = incident
        if neighbours := self._deps.neighbours(node):
            told["neighbour_nodes"] = [each.name for each in neighbours]
            told["neighbours"] = [[each.address, each.port] for each in neighbours]  # for agents that do not ask Slurm
        if surveys := self._deps.surveys(node):
            told["surveys"] = surveys
        if (interval_s := self._deps.heartbeat_s()) is not None:
            told["interval_s"] = interval_s
        return JSONResponse(told)

    async def orders(self, request: Request) -> Response:
        caller = await self._api.auth.caller(request, Role.AGENT)
        self._count(caller, {Load.ORDERS: 1})
        query = request.query_params
        node, instance_id, boot_id = (clean(query.get(k, ""), 256) for k in ("node", "instance_id", "boot_id"))
        for field, value in (("node", node), ("boot_id", boot_id)):
            if not value:
                raise ApiError(422, "invalid", f"{field}: is missing", field)
        _own_node(caller.node, node)
        end_s = self._deps.clock.monotonic_s() + _wait_s(query.get("wait_s"))
        found = await self._wait_for_orders(request, node, instance_id, boot_id, end_s)
        return JSONResponse({"orders": [order_json(i, self._deps.clock.now()) for i in found]})

    async def _wait_for_orders(
        self, request: Request, node: str, instance_id: str, boot_id: str, end_s: float
    ) -> tuple[Intent, ...]:
        hub, boot = self._deps.orders, f"{node}/{instance_id}/{boot_id}"
        while True:
            generation = hub.generation(node)
            pause_s = math.inf
            if hub.may_have_orders(node, boot) and not await request.is_disconnected():
                found = await self._api.threads.write(
                    partial(self._deps.store.take_orders, observes=_observes(self._deps, node)),
                    node,
                    instance_id,
                    boot_id,
                    self._deps.clock.now(),
                )
                new = hub.fresh(boot, found, _OrdersRoom(self._deps.clock.now()).takes)
                if new:
                    return new
                if found:
                    pause_s = 1.0  # handed out a moment ago: look again soon, in case the answer was lost
                else:
                    hub.found_none(boot, generation)
            left_s = end_s - self._deps.clock.monotonic_s()
            if left_s <= 0 or hub.closed or await request.is_disconnected():
                return ()
            await hub.wait(node, generation, min(left_s, pause_s))

    def _count(self, caller: Principal, loads: Mapping[Load, float]) -> None:
        try:
            self._api.quota.take(caller, loads)
        except ApiError:
            self._counters.limited.inc()
            raise

    def _note(self, report: Report, notes: Notes, items: Items) -> None:
        if notes.clamped:
            log.warning("event=ages_clamped node=%s boot=%s items=%d", report.node, report.boot_id, notes.clamped)
        if items.unknown:
            log.warning(
                "event=unknown_items_ignored node=%s agent=%s items=%d",
                report.node,
                report.agent_version,
                items.unknown,
            )
        for each in items.refused:
            log.error(
                "event=item_refused node=%s agent=%s error=%r", report.node, report.agent_version, each.error.message
            )
        for item in notes.history:
            log.info(
                "event=history_noted node=%s check=%s component=%s code=%s",
                report.node,
                item.check,
                item.component,
                item.code,
            )
        self._counters.notes(notes, items.unknown, len(items.refused))


def _loads(items: Iterable[Any]) -> dict[Load, float]:
    kinds = [each.get("kind") if isinstance(each, Mapping) else None for each in items]
    return {Load.ITEMS: len(kinds), Load.FAULTS: sum(kind in _FAULTS for kind in kinds)}


_FAULTS = ("finding", "clear")


@dataclass
class _OrdersRoom:
    """Room for orders in one answer. Users name the files in orders about their jobs: those of a node with many small jobs may be more than
    its agent reads in one answer."""

    now: datetime
    left_bytes: int = _ORDERS_BYTES

    def takes(self, order: Intent) -> bool:
        """Whether the order still fits. The first one always does."""
        size = len(json.dumps(order_json(order, self.now), ensure_ascii=False).encode(errors="replace"))
        first = self.left_bytes == _ORDERS_BYTES
        self.left_bytes -= size
        return first or self.left_bytes >= 0


def order_json(intent: Intent, now: datetime) -> dict[str, Any]:
    """An order as the agent gets it; ``expires_s`` is the time left now."""
    action = intent.action
    if not isinstance(action, SendOrder):
        raise TypeError(f"{intent.key} is not an order")
    left_s = action.expires_s - (now - intent.planned_at).total_seconds()
    return {
        "id": intent.key,
        "incident": intent.incident_id,
        "verb": action.verb.value,
        "args": dict(action.args),
        "boot_id": action.boot_id,
        "instance_id": action.instance_id,
        "expires_s": round(max(left_s, 0.0), 3),
    }


def given_checks(name: str, node: Node | None, policy: Policy, has: str | None) -> Mapping[str, Any] | None:
    """What the answer to a heartbeat says of checks; None: nothing. ``has``: version that the agent has. A node that Slurm does not show
    yet keeps what it has, rather than go to the most cautious policy and back."""
    mine = checks_for(name, node, policy)
    if has is None:
        return asdict(mine.lists)
    if has == mine.version or (has and node is None):
        return None
    return mine.document()


def _node_of(world: World | None, name: str) -> Node | None:
    return world.view.nodes.get(name) if world is not None and world.view is not None else None


def _observes(deps: ApiDeps, node: str) -> bool:
    """Whether nothing may be done to the node, by this process's settings and Slurm as last read."""
    shown = _node_of(deps.world(), node)
    return deps.mode is Mode.OBSERVE or policy_for(node, shown, deps.policy).mode is Mode.OBSERVE


def _own_node(mine: str | None, named: str) -> None:
    if mine != named:
        raise ApiError(403, "wrong_node", f"The token belongs to node {mine}, not to {named}", "node")


def _wait_s(text: str | None) -> float:
    try:
        wait_s = float(text) if text else 0.0
    except ValueError:
        raise ApiError(422, "invalid", "wait_s: must be a number of seconds", "wait_s") from None
    if math.isnan(wait_s):
        raise ApiError(422, "invalid", "wait_s: must be a number of seconds", "wait_s")
    return min(max(wait_s, 0.0), MAX_WAIT_S)


def _time(text: str | None) -> datetime | None:
    """The node's wall clock; anything unreadable is as good as absent."""
    if not text:
        return None
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        return None
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
