"""The agent's question and the real API, over real HTTP; Slurm's view is given, and a stub replaces the quorum service."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest
import uvicorn

from holdfast.agent.jobs.job_socket import JobSocket
from holdfast.agent.jobs.rendezvous import Rooms
from holdfast.agent.sending.client import ControllerClient, Controllers
from holdfast.api.app import create_app
from holdfast.api.callers.auth import hash_token
from holdfast.api.deps import ApiDeps
from holdfast.api.transport.server import build_server
from holdfast.clock import SystemClock
from holdfast.controller.observing.agents import AgentRegistry
from holdfast.controller.orders import OrderHub
from holdfast.model.book import Book, World
from holdfast.model.elastic_jobs.rooms import OpenRoom, RoomRules, RoomView
from holdfast.model.errors import Unavailable
from holdfast.model.policies.policy import Policy
from holdfast.model.slurm.cluster import ClusterView, Job, JobKey
from holdfast.ports import QuorumRooms
from holdfast.store import open_store
from support.job_socket import Job as Connection
from support.job_socket import KnownJobs

pytestmark = pytest.mark.slow

ELEMENT = Job(
    key=JobKey("c", 71, datetime(2026, 11, 22, tzinfo=UTC)),
    name="train",
    user="ann",
    uid=os.getuid(),
    account="",
    partition="gpu",
    qos="",
    state="RUNNING",
    reason="",
    restarts=0,
    requeue=True,
    batch=True,
    num_nodes=1,
    nodes=("n1",),
    required_nodes=(),
    excluded_nodes=(),
    comment="holdfast elastic=1:2",
    array_job_id=71,
    array_task_id=0,
)


class Door:
    """Stub of the quorum service."""

    away = False

    def open(self, room: str, rules: RoomRules) -> OpenRoom:
        if self.away:
            raise Unavailable("the quorum service does not answer")
        return OpenRoom(f"http://head:40001/{room}", "s3cret-of-the-job")

    def rooms(self) -> tuple[RoomView, ...]:
        if self.away:
            raise Unavailable("the quorum service does not answer")
        return ()


class Controller:
    """The real application behind uvicorn on loopback, with a world of one job."""

    def __init__(self, folder: Path) -> None:
        self.job, self.door, self.clock = ELEMENT, Door(), SystemClock()
        self._store = open_store(f"sqlite:///{folder}/holdfast.db")
        self._store.add_token("agent", "n1", hash_token("token-n1"), self.clock.now())
        deps = ApiDeps(
            store=self._store,
            agents=AgentRegistry(),
            clock=self.clock,
            wake=lambda: None,
            world=self._world,
            orders=OrderHub(self.clock.monotonic_s),
            loop_turned_at=lambda: None,
            rooms=cast(QuorumRooms, self.door),
        )
        self._server = build_server(create_app(deps), host="127.0.0.1", port=0)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve()))
        self._thread.start()
        deadline_s = time.monotonic() + 30
        while not self._server.started:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)

    @property
    def url(self) -> str:
        host, port = self._server.servers[0].sockets[0].getsockname()
        return f"http://{host}:{port}"

    def _world(self) -> World:
        now = self.clock.now()
        view = ClusterView("c", now, {}, {self.job.key.job_id: self.job}, {})
        return World(now, Policy(), Book(), view)

    def close(self) -> None:
        assert isinstance(self._server, uvicorn.Server)
        self._server.should_exit = True
        self._thread.join(20)
        self._store.close()


@contextmanager
def asking(folder: Path, url: str) -> Iterator[Connection]:
    """A launcher of job 71 on a node whose agent has that controller."""
    (folder / "token").write_text("token-n1")
    rooms = Rooms(lambda: ControllerClient(Controllers((url,)), folder / "token", None))
    desk = JobSocket(folder / "run", KnownJobs({71: frozenset({os.getpid()})}), lambda _item: None, rooms)
    desk.start()
    try:
        with Connection(desk.path) as launcher:
            yield launcher
    finally:
        desk.stop()


def test_a_group_gets_its_room_from_what_slurm_shows_and_keeps_it_while_the_service_is_away(tmp_path: Path) -> None:
    controller = Controller(tmp_path)
    question = {"v": 1, "kind": "ask.room", "job_id": 71, "restarts": 0}
    try:
        with asking(tmp_path, controller.url) as launcher:
            controller.job = replace(ELEMENT, state="CONFIGURING")
            said = launcher.ask(question)
            assert (said["retry"], "CONFIGURING" in said["error"]) == (True, True)
            controller.job = ELEMENT
            room = launcher.ask(question)
            sizes = {"group": 0, "start": "71.0", "min": 1, "max": 2, "sizes": [1, 2], "spares": 0}
            name = f"job-71-{ELEMENT.key.submit_time.timestamp():.0f}"
            where = {"room": name, "url": f"http://head:40001/{name}", "token": "s3cret-of-the-job"}
            assert room == {"v": 1, "kind": "room", **where, **sizes}
            controller.door.away = True
            assert launcher.ask(question) == room
            assert launcher.ask({**question, "restarts": 1})["retry"] is True
            controller.job = replace(ELEMENT, comment="")
            said = launcher.ask(question)
            assert (said["retry"], "not elastic" in said["error"]) == (False, True)
    finally:
        controller.close()
