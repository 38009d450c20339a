"""How long each question of an operator takes on a year of history: ``bench/history.py [--nodes 1000] [--days 365] [--rate 20]``.

A year of incidents is written into an empty store (``--keep FOLDER`` leaves it there as SQLite). What the controller does in the background
is done and timed: figures of closed incidents, totals for ``/metrics``, the history behind lemons. Then each question is asked of the real
API in this process, as `holdfast` asks it, three times; the slowest counts. The goal is one second. ``--postgresql`` does the same on a
server that it starts; ``--url`` on a database that is there and empty."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.kit import figures
from bench.kit.year import Year, write

from holdfast.api.app import create_app
from holdfast.api.callers.auth import hash_token
from holdfast.api.callers.readers import ReaderBounds, ReaderQuotas
from holdfast.api.deps import Api, ApiDeps, frames_after
from holdfast.clock import SystemClock
from holdfast.controller.keeping.figures_keeper import FiguresKeeper
from holdfast.controller.keeping.totals_keeper import TotalsKeeper
from holdfast.controller.observing.agents import AgentRegistry
from holdfast.controller.observing.background import BackgroundWatch
from holdfast.controller.orders import OrderHub
from holdfast.metrics.tally import Tally
from holdfast.model.book import Book, World
from holdfast.model.errors import Unavailable
from holdfast.model.policies.policy import Policy
from holdfast.model.slurm.cluster import ClusterView, Node
from holdfast.store import SqlStore, open_store

GOAL_S = 1.0
TIMES = 3
FRAMES = 500
"""Records of one batch of a stream."""
KINDS = "&".join(f"kind={kind}" for kind in ("operator", "paused", "resumed", "brake.released"))


def questions(now: datetime, incident: str) -> dict[str, str]:
    """Command → what it asks the API."""

    def ago(**span: float) -> str:
        return (now - timedelta(**span)).strftime("%Y-%m-%dT%H:%M:%SZ")

    return {
        "status": f"/v1/overview?since={ago(hours=15)}",
        "night": f"/v1/night?since={ago(hours=15)}",
        "night --since 30d": f"/v1/night?since={ago(days=30)}",
        "night --since 365d": f"/v1/night?since={ago(days=365)}",
        "night --until 30 days ago": f"/v1/night?since={ago(days=60)}&until={ago(days=30)}",
        "incidents": "/v1/incidents?limit=50",
        "incidents --since yesterday": f"/v1/incidents?since={ago(days=1)}&limit=50",
        "incidents --open": "/v1/incidents?open=true&limit=50",
        "incidents --node n7 --limit 1000": "/v1/incidents?node=n7&limit=1000",
        "incident show": f"/v1/incidents/{incident}",
        "node history n1 (many faults)": "/v1/nodes/n1/history",
        "node history n500, 1000 entries": "/v1/nodes/n500/history?limit=1000",
        "node sheet n1": "/v1/nodes/n1/sheet",
        "node health": "/v1/nodes/n1/health",
        "health of every node": "/v1/nodes/health",
        "lemons": "/v1/lemons",
        "notices (7 d)": "/v1/notices?limit=50",
        "notices --since 365d": f"/v1/notices?since={ago(days=365)}&limit=1000",
        "proposals": "/v1/proposals",
        "jobs": "/v1/jobs?limit=1000",
        "jobs --since yesterday": f"/v1/jobs?since={ago(days=1)}",
        "jobs --job 7": "/v1/jobs?job_id=7",
        "audit (7 d)": f"/v1/events?since={ago(days=7)}&{KINDS}&limit=1000",
        "audit --since 365d, first page": f"/v1/events?since={ago(days=365)}&{KINDS}&limit=1000",
        "events --since yesterday": f"/v1/events?since={ago(days=1)}",
        "events of a node": "/v1/events?node=n500&limit=1000",
        "events from a cursor": "/v1/events?after_id=200000&limit=1000",
        "actions, newest": "/v1/actions?limit=200",
        "actions --since yesterday": f"/v1/actions?since={ago(days=1)}&limit=1000",
        "actions of a node": "/v1/actions?node=n500&limit=200",
        "actions of upkeep": "/v1/actions?incident=upkeep&limit=200",
        "saved --since 7d": f"/v1/saved?since={ago(days=7)}",
        "saved (30 d)": "/v1/saved",
        "saved --since 365d": f"/v1/saved?since={ago(days=365)}",
        "metrics (30 d)": "/v1/metrics",
        "metrics --days 365": f"/v1/metrics?window_s={365 * 86400}",
        "metrics --days 365 --each": f"/v1/metrics?window_s={365 * 86400}&each=true",
        "nodes": "/v1/nodes",
        "Prometheus scrapes": "/metrics",
    }


class NoSlurm:
    """A scheduler that does not answer: the record is read without it."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def refuse(*_: object) -> Any:
            raise Unavailable("no Slurm here")

        return refuse


@dataclass
class Head:
    """A store, and what its controller has made of it in the background."""

    store: SqlStore
    world: World
    fence: int
    took_s: dict[str, float]
    """Background work → seconds."""
    totals: Tally | None = None

    def timed(self, name: str, work: Callable[[], object]) -> None:
        began_s = time.perf_counter()
        work()
        self.took_s[name] = time.perf_counter() - began_s


def prepared(store: SqlStore, year: Year, now: datetime) -> Head:
    """Do what the controller does in the background."""
    nodes = {f"n{n + 1}": Node(f"n{n + 1}", "IDLE", frozenset()) for n in range(year.nodes)}
    world = World(now, Policy(), Book(), ClusterView("bench", now, nodes, {}, {}))
    lease = store.take_lease("bench", now, 3600)
    assert lease is not None
    head = Head(store, world, lease.fence, {})
    clock = SystemClock()
    figures = FiguresKeeper(store, clock, lambda: lease.fence)
    head.timed("figures of all closed incidents, once", partial(_until_done, figures.keep_some))
    head.timed("figures, every 10 s", figures.keep_some)
    totals = TotalsKeeper(store, clock, lambda: lease.fence)
    head.timed("totals of the record, once", partial(_until_done, totals.read_on))
    head.timed("totals, every 5 s", totals.read_on)
    restarted = TotalsKeeper(store, clock, lambda: lease.fence)
    head.timed("totals after a restart", partial(_until_done, restarted.read_on))
    watch = BackgroundWatch(store, NoSlurm(), resolve=lambda _: {})
    head.timed("history of the nodes, every 300 s", partial(watch.refresh, world))
    head.world, head.totals = replace(world, background=watch.newest), totals.shown
    return head


def _until_done(step: Callable[[], bool]) -> None:
    while step():
        pass


def ask(head: Head, now: datetime) -> dict[str, list[float]]:
    """Question → seconds of each time it was asked."""
    store = head.store
    store.add_token("operator", "op", hash_token("token-op"), now)
    clock = SystemClock()
    app = create_app(
        ApiDeps(
            store=store,
            agents=AgentRegistry(),
            clock=clock,
            wake=lambda: None,
            world=lambda: head.world,
            orders=OrderHub(clock.monotonic_s),
            loop_turned_at=clock.monotonic_s,
            totals=lambda: head.totals,
        )
    )
    api: Api = app.state.api
    api.readers = ReaderQuotas(clock.monotonic_s, ReaderBounds(work_s=1e9))  # no one asks all of this in a row
    took: dict[str, list[float]] = {}

    async def all_of_them() -> None:
        transport = httpx.ASGITransport(app)
        headers = {"Authorization": "Bearer token-op"}
        async with httpx.AsyncClient(transport=transport, base_url="http://bench", headers=headers) as client:
            for name, path in questions(now, f"{100:012x}").items():
                for _ in range(TIMES):
                    took.setdefault(name, []).append(await _one(client, path))

    anyio.run(all_of_them)
    middle = store.newest_event_id() // 2
    for _ in range(TIMES):
        began_s = time.perf_counter()
        frames_after(store, middle, FRAMES)
        took.setdefault(f"stream from a cursor, {FRAMES} records", []).append(time.perf_counter() - began_s)
    return took


async def _one(client: httpx.AsyncClient, path: str) -> float:
    began_s = time.perf_counter()
    answer = await client.get(path)
    took_s = time.perf_counter() - began_s
    answer.raise_for_status()
    return took_s


@contextmanager
def stores(args: argparse.Namespace) -> Iterator[Iterator[tuple[str, str]]]:
    """Name and address of each empty database."""
    with tempfile.TemporaryDirectory(prefix="hfyear-") as scratch:

        def each() -> Iterator[tuple[str, str]]:
            if args.url:
                yield "the database that was named", args.url
                return
            yield "SQLite", f"sqlite:///{args.keep or scratch}/holdfast.db"
            if args.postgresql:
                sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
                from support.postgres import postgres_binaries, running_server  # noqa: PLC0415

                binaries = postgres_binaries()
                assert binaries is not None, "PostgreSQL is not installed"
                with running_server(binaries) as server:
                    yield "PostgreSQL", server.url(server.create())

        yield each()


def run(name: str, url: str, year: Year) -> bool:
    now = datetime.now(UTC)
    with closing(open_store(url)) as store:
        began_s = time.perf_counter()
        count = write(store, year, now)
        wrote_s = time.perf_counter() - began_s
        print(
            f"\n{name}: {count:,} incidents of {year.nodes:,} nodes in {year.days} days, written in {wrote_s:.0f} s",
            flush=True,
        )
        head = prepared(store, year, now)
        for work, took_s in head.took_s.items():
            print(f"  {work:<48} {took_s:7.3f}s", flush=True)
        took = ask(head, now)
    print(f"  {'holdfast …':<36} {'median':>9} {'slowest':>9}")
    for question, values in took.items():
        slow = "" if max(values) < GOAL_S else f"  goal < {GOAL_S:g} s: MISSED"
        print(f"  {question:<36} {sorted(values)[TIMES // 2]:8.3f}s {max(values):8.3f}s{slow}")
    return all(max(values) < GOAL_S for values in took.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--rate", type=float, default=20.0, help="faults per 1000 node-days")
    parser.add_argument("--postgresql", action="store_true")
    parser.add_argument("--url", default="", help="an empty database")
    parser.add_argument("--keep", default="", help="folder for the SQLite file")
    args = parser.parse_args()
    figures.heading("a year of history: how long each question takes")
    year = Year(args.nodes, args.days, args.rate)
    with stores(args) as found:
        met = [run(name, url, year) for name, url in found]
    print(f"\nevery question below {GOAL_S:g} s: {'met' if all(met) else 'MISSED'}")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
