"""A real controller's API on a free port of loopback, with one incident on record, and the command line for it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest

from holdfast.api.app import create_app
from holdfast.api.callers.auth import hash_token
from holdfast.api.deps import ApiDeps
from holdfast.api.transport.server import build_server
from holdfast.cli.app import run
from holdfast.clock import SystemClock
from holdfast.controller.observing.agents import AgentRegistry, Hello
from holdfast.controller.orders import OrderHub
from holdfast.model.background import Background, Lemon, Outage
from holdfast.model.book import Book, Brake, BrakeKind, Change, World
from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import Incident, IncidentState, Recovery, RecoveryPhase
from holdfast.model.policies.policy import Policy, SparePolicy
from holdfast.model.slurm.cluster import ClusterView, JobKey, Node, Reservation
from holdfast.store import SqlStore, open_store
from holdfast_checks.result import Remedy, Severity

ID = "0h3k5d2m8x1q"


@dataclass
class Outcome:
    status: int
    out: str
    err: str


Holdfast = Callable[..., Outcome]


@pytest.fixture
def holdfast(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Holdfast:
    """``holdfast(*argv, ENV=…)`` in this process."""
    for name in ("HOLDFAST_URL", "HOLDFAST_TOKEN", "HOLDFAST_TOKEN_FILE", "HOLDFAST_CONFIG", "HOLDFAST_CA_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    def call(*argv: str, **env: str) -> Outcome:
        capsys.readouterr()
        with monkeypatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            err = StringIO()
            with redirect_stderr(err):
                status = run(argv)
        captured = capsys.readouterr()
        return Outcome(int(status), captured.out, captured.err + err.getvalue())

    return call


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment in which the verbs reach a running controller as an operator."""
    folder = tmp_path_factory.mktemp("cli")
    store = open_store(f"sqlite:///{folder}/holdfast.db")
    store.add_token("operator", "op", hash_token("token-op"), datetime.now(UTC))
    store.add_token("user", "1001", hash_token("token-user"), datetime.now(UTC))
    server = build_server(create_app(_deps(store)), host="127.0.0.1", port=_free_port())
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until_s = time.monotonic() + 30
    while not server.started:
        assert thread.is_alive(), "the API did not start"
        assert time.monotonic() < until_s, "the API does not start"
        time.sleep(0.005)
    yield {"HOLDFAST_URL": f"http://127.0.0.1:{server.config.port}", "HOLDFAST_TOKEN": "token-op"}
    server.should_exit = True
    thread.join(5)
    store.close()


def _deps(store: SqlStore) -> ApiDeps:
    clock = SystemClock()
    world = _record(store, clock.now())
    agents = AgentRegistry()
    agents.heard(Hello("n1", "i-1", "b-1", interval_s=3000.0, all_ok=True), clock.now(), clock.monotonic_s())
    return ApiDeps(
        store=store,
        agents=agents,
        clock=clock,
        wake=lambda: None,
        world=lambda: _turned(world, clock.now()),
        orders=OrderHub(clock.monotonic_s),
        loop_turned_at=clock.monotonic_s,
    )


def _turned(world: World, now: datetime) -> World:
    """As after a turn of the control loop a moment ago: Slurm shows the same."""
    assert world.view is not None
    return replace(world, now=now, view=replace(world.view, read_at=now))


def _record(store: SqlStore, now: datetime) -> World:
    def at(seconds: float) -> datetime:
        return now - timedelta(seconds=60 - seconds)

    job = JobKey("c", 7, at(-600))
    incident = Incident(
        id=ID,
        node="n1",
        instance_id="i-1",
        boot_id="b-1",
        state=IncidentState.AWAITING_HUMAN,
        severity=Severity.FATAL,
        remedy=Remedy.REPLACE,
        check="gpu.xid",
        headline="gpu.xid 79 GPU-3: fell off the bus",
        fault_at=at(0),
        opened_at=at(0.25),
        note="no capacity",
    )
    recovery = Recovery(job, 0, ID, RecoveryPhase.RUNNING, "ann", 1001, ("n1",), (), "gpu", 8, at(1))
    events = (
        Event(at(0), EventKind.FAULT_OCCURRED, ID, "n1", text="GPU 3 fell off the bus"),
        Event(at(0.25), EventKind.INCIDENT_OPENED, ID, "n1"),
        Event(at(0.5), EventKind.ACTION_DONE, ID, "n1", text="drained", detail={"kind": "Drain", "target": "n1"}),
        Event(at(1), EventKind.JOB_STOPPED, ID, "n1", job.text, detail={"gpus": 8}),
        Event(at(3), EventKind.JOB_RUNNING, ID, "n1", job.text),
    )
    lease = store.take_lease("test", now, 3600)
    assert lease is not None
    brake = Brake(BrakeKind.DRAINS, now, "4 drains in 10 minutes, at most 3")
    store.commit(Change(incidents=(incident,), recoveries=(recovery,), events=events, brakes=(brake,)), lease.fence)
    nodes = {"n1": Node("n1", "IDLE", frozenset({"DRAIN"}), gpu_count=8), "n2": Node("n2", "IDLE", frozenset())}
    book = Book(incidents={ID: incident}, brakes={"drains": brake})
    policy = replace(Policy(), spares=SparePolicy(wanted=2))
    view = ClusterView("c", now, nodes, {}, {"holdfast-spares": Reservation("holdfast-spares", ("n2",))})
    outage = Outage("n1", ID, "i-1", "gpu.xid 79", at(1))
    background = Background(now, now, (outage,), {"n1": Lemon(1, None, ("1 fault in 28 days",))})
    return World(now, policy, book, view, background=background)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
