"""The real store on SQLite, a clock that moves only when a test moves it, and the application served in-process over ASGI."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import anyio
import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import URL

from holdfast.api.app import create_app
from holdfast.api.callers.auth import Authenticator, hash_token
from holdfast.api.callers.quota import AgentQuota
from holdfast.api.callers.readers import ReaderQuotas
from holdfast.api.callers.stranger_turns import Strangers
from holdfast.api.deps import Api, ApiDeps, ApiStore
from holdfast.api.shared import SharedAnswers
from holdfast.controller.keeping.steps_untaken import UntakenWatch
from holdfast.controller.observing.agents import AgentRegistry
from holdfast.controller.orders import OrderHub
from holdfast.model.access.tokens import TokenRow
from holdfast.model.actions.action import Intent
from holdfast.model.agents.report import Report
from holdfast.model.book import Change, World
from holdfast.model.errors import Unavailable
from holdfast.model.incidents.incident import Incident
from holdfast.model.policies.policy import Mode, Policy
from holdfast.ports import Accepted
from holdfast.store import SqlStore, open_store
from holdfast.store.engines import parse_url

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class StillClock:
    def __init__(self) -> None:
        self.passed_s = 0.0
        self.base_s = 1000.0

    def now(self) -> datetime:
        return T0 + timedelta(seconds=self.passed_s)

    def monotonic_s(self) -> float:
        return self.base_s + self.passed_s


class WatchedStore(SqlStore):
    """The real store; ``away`` makes what the API calls fail as a database would, and calls are counted."""

    away = False
    token_lookups = 0
    order_lookups = 0
    token_reads = 0

    def __init__(self, url: URL) -> None:
        super().__init__(url)
        self.reports: list[Report] = []
        self.uses_recorded: list[dict[str, datetime]] = []

    def _answer(self) -> None:
        if self.away:
            raise Unavailable("the database does not answer")

    def find_token(self, token_hash: str) -> TokenRow | None:
        self._answer()
        self.token_lookups += 1
        return super().find_token(token_hash)

    def tokens(self) -> tuple[TokenRow, ...]:
        self._answer()
        self.token_reads += 1
        return super().tokens()

    def tokens_used(self, uses: Mapping[str, datetime]) -> None:
        self._answer()
        self.uses_recorded.append(dict(uses))
        super().tokens_used(uses)

    def accept_soon(self, report: Report, _shown: Collection[int] | None = None) -> Future[Accepted]:
        self._answer()
        future = super().accept_soon(report)
        if not future.result().duplicate:
            self.reports.append(report)
        return future

    def take_orders(
        self, node: str, instance_id: str, boot_id: str, now: datetime, *, observes: bool = False
    ) -> tuple[Intent, ...]:
        self._answer()
        self.order_lookups += 1
        return super().take_orders(node, instance_id, boot_id, now, observes=observes)

    def list_incidents(self, **wanted: Any) -> tuple[Incident, ...]:
        self._answer()
        return super().list_incidents(**wanted)

    def ping(self) -> None:
        self._answer()
        super().ping()


class _Current:
    """The store of the running test."""

    def __init__(self, served: Served) -> None:
        self._served = served

    def __getattr__(self, name: str) -> Any:
        return getattr(self._served.store, name)


class Served:
    """The application with everything behind it, and calls with a role's token. Built once; each test has its own store."""

    store: WatchedStore

    def __init__(self) -> None:
        self.clock = StillClock()
        self.forget()
        self.deps = ApiDeps(
            store=cast(ApiStore, _Current(self)),
            agents=self.agents,
            clock=self.clock,
            wake=self._wake,
            world=lambda: self.world,
            orders=self.hub,
            loop_turned_at=lambda: self.turned_at_s,
        )
        self.app: FastAPI = create_app(self.deps)

    def forget(self) -> None:
        """As after a restart, and later than any earlier time."""
        self.clock.base_s += 10_000.0
        self.clock.passed_s = 0.0
        self.agents = AgentRegistry()
        self.hub = OrderHub(self.clock.monotonic_s)
        self.woken = 0
        self.world: World | None = None
        self.turned_at_s: float | None = self.clock.monotonic_s() - 1

    def begin(self, store: WatchedStore) -> None:
        """A new test."""
        self.forget()
        self.store = store
        deps = self.deps
        deps.agents, deps.orders, deps.world, deps.leader = self.agents, self.hub, lambda: self.world, lambda: True
        deps.mode, deps.policy = Mode.ACT, Policy(mode=Mode.ACT)
        deps.rooms, deps.look, deps.untaken = None, lambda _job_id: None, UntakenWatch()
        api: Api = self.app.state.api
        api.auth = Authenticator(deps.store, api.threads.read, deps.clock)
        self.refill()

    def refill(self) -> None:
        """Give every token its full quota again."""
        api: Api = self.app.state.api
        api.quota, api.readers = AgentQuota(self.clock.monotonic_s), ReaderQuotas(self.clock.monotonic_s)
        api.strangers, api.shared = Strangers(), SharedAnswers(self.clock.monotonic_s)

    def commit(self, change: Change) -> None:
        """Write as the control loop does."""
        lease = self.store.lease()
        assert lease is not None
        self.store.commit(change, lease.fence)

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


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with its schema, a leader and a token of each role, to be copied."""
    path = tmp_path_factory.mktemp("api") / "empty.db"
    store = open_store(f"sqlite:///{path}")
    store.take_lease("test", T0, 1e6)
    for role, subject in (("agent", "n1"), ("agent", "n2"), ("user", "1001"), ("viewer", "eve"), ("operator", "op")):
        store.add_token(role, subject, hash_token(f"token-{subject}"), T0)
    store.close()
    return path


@pytest.fixture(scope="session")
def application() -> Served:
    return Served()


@pytest.fixture
def served(application: Served, empty_store: Path, tmp_path: Path) -> Iterator[Served]:
    application.begin(_copy(empty_store, tmp_path))
    yield application
    application.store.close()


@pytest.fixture(scope="session")
def refusing(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served()
    served.begin(_copy(empty_store, tmp_path_factory.mktemp("refusing")))
    yield served
    served.store.close()


@pytest.fixture
def untouched(refusing: Served) -> Iterator[Served]:
    """One store for all tests whose requests are refused: none of them may leave a trace."""
    yield refusing
    assert refusing.store.reports == []
    assert refusing.agents.views() == {}
    assert refusing.store.events() == ()


def _copy(empty_store: Path, folder: Path) -> WatchedStore:
    path = folder / "holdfast.db"
    shutil.copy(empty_store, path)
    return WatchedStore(parse_url(f"sqlite:///{path}"))
