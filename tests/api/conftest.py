"""A store in memory, a clock that stands still until told, and the application served in-process over ASGI."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import httpx
import pytest
from fastapi import FastAPI

from holdfast.api.app import create_app
from holdfast.api.auth import hash_token
from holdfast.api.deps import ApiDeps
from holdfast.api.hub import OrderHub
from holdfast.controller.agents import AgentRegistry
from holdfast.model.action import Intent
from holdfast.model.book import World
from holdfast.model.errors import NotFound, Unavailable
from holdfast.model.event import Event, EventKind
from holdfast.model.incident import Incident, Recovery
from holdfast.model.report import Report
from holdfast.ports import Accepted, Operation

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@dataclass
class Token:
    name: str
    role: str
    node: str | None = None
    uid: int | None = None


class StillClock:
    def __init__(self) -> None:
        self.passed_s = 0.0

    def now(self) -> datetime:
        return T0 + timedelta(seconds=self.passed_s)

    def monotonic_s(self) -> float:
        return 1000.0 + self.passed_s


@dataclass
class MemoryStore:
    """What the API asks of the store, kept in lists; ``away`` makes every call fail."""

    tokens: dict[str, Token] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)
    orders: list[Intent] = field(default_factory=list)
    incident_list: list[Incident] = field(default_factory=list)
    recovery_list: list[Recovery] = field(default_factory=list)
    intent_list: list[Intent] = field(default_factory=list)
    event_list: list[Event] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    away: bool = False
    token_lookups: int = 0
    order_lookups: int = 0

    def _answer(self) -> None:
        if self.away:
            raise Unavailable("the database does not answer")

    def find_token(self, token_hash: str) -> Token | None:
        self._answer()
        self.token_lookups += 1
        return self.tokens.get(token_hash)

    def accept(self, report: Report) -> Accepted:
        self._answer()
        name = (report.node, report.boot_id, report.outbox_id)
        seen = [r.sequence for r in self.reports if (r.node, r.boot_id, r.outbox_id) == name]
        if report.sequence in seen:
            return Accepted(duplicate=True)
        self.reports.append(report)
        return Accepted(duplicate=False, out_of_order=bool(seen) and report.sequence < max(seen))

    def take_orders(self, node: str, instance_id: str, boot_id: str, now: datetime) -> tuple[Intent, ...]:
        self._answer()
        self.order_lookups += 1
        mine = [o for o in self.orders if getattr(o.action, "node", "") == node]
        return tuple(o for o in mine if getattr(o.action, "boot_id", "") in ("", boot_id))

    def operate(self, operation: Operation, at: datetime) -> None:
        self._answer()
        if operation.verb == "release_brake" and operation.target != "drains":
            raise NotFound(f"no brake {operation.target} is tripped")
        self.operations.append(operation)

    def incidents(
        self, *, only_open: bool = False, node: str | None = None, since: datetime | None = None, limit: int = 200
    ) -> tuple[Incident, ...]:
        self._answer()
        found = [i for i in self.incident_list if (i.open or not only_open) and node in (None, i.node)]
        return tuple(found[:limit])

    def incident(self, incident_id: str) -> Incident | None:
        self._answer()
        return next((i for i in self.incident_list if i.id == incident_id), None)

    def events(
        self,
        *,
        incident_id: str | None = None,
        since: datetime | None = None,
        after_id: int = 0,
        kinds: tuple[EventKind, ...] = (),
        limit: int = 10_000,
    ) -> tuple[Event, ...]:
        self._answer()
        found = [e for e in self.event_list if incident_id in (None, e.incident_id) and e.id > after_id]
        found = [e for e in found if (since is None or e.at >= since) and (not kinds or e.kind in kinds)]
        return tuple(found[:limit])

    def recoveries(
        self, *, job_id: int | None = None, incident_id: str | None = None, since: datetime | None = None
    ) -> tuple[Recovery, ...]:
        self._answer()
        found = [r for r in self.recovery_list if job_id in (None, r.job.job_id)]
        return tuple(r for r in found if incident_id in (None, r.incident_id))

    def intents(self, *, incident_id: str | None = None, limit: int = 1000) -> tuple[Intent, ...]:
        self._answer()
        return tuple(i for i in self.intent_list if incident_id in (None, i.incident_id))[:limit]

    def ping(self) -> None:
        self._answer()


class Served:
    """The application with everything behind it, and calls with a role's token."""

    def __init__(self) -> None:
        self.clock = StillClock()
        self.store = MemoryStore()
        self.agents = AgentRegistry()
        self.hub = OrderHub(self.clock.monotonic_s)
        self.woken = 0
        self.world: World | None = None
        self.turned_at_s: float | None = 999.0
        self.deps = ApiDeps(
            store=self.store,  # type: ignore[arg-type]
            agents=self.agents,
            clock=self.clock,
            wake=self._wake,
            world=lambda: self.world,
            orders=self.hub,
            loop_turned_at=lambda: self.turned_at_s,
        )
        self.app: FastAPI = create_app(self.deps)
        for token in (
            Token("n1", "agent", node="n1"),
            Token("n2", "agent", node="n2"),
            Token("ann", "user", uid=1001),
            Token("eve", "viewer"),
            Token("op", "operator"),
        ):
            self.store.tokens[hash_token(f"token-{token.name}")] = token

    def _wake(self) -> None:
        self.woken += 1

    @asynccontextmanager
    async def client(self, who: str | None) -> AsyncIterator[httpx.AsyncClient]:
        headers = {"Authorization": f"Bearer token-{who}"} if who else {}
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://controller", headers=headers) as client:
            yield client

    def call(self, method: str, path: str, who: str | None = "op", **kwargs: Any) -> httpx.Response:
        async def one() -> httpx.Response:
            async with self.client(who) as client:
                return await client.request(method, path, **kwargs)

        return anyio.run(one)

    def run(self, work: Callable[[httpx.AsyncClient], Awaitable[None]], who: str = "op") -> None:
        async def many() -> None:
            async with self.client(who) as client:
                await work(client)

        anyio.run(many)


@pytest.fixture
def served() -> Served:
    return Served()
