"""The load generator of ``bench/ingest.py``: a separate process, pinned to its own core, that records its lag.

``load.py PLAN.json`` runs one plan against a controller on loopback, prints a line ``measuring``, and ends with one line of JSON.
A raw HTTP/1.1 client on asyncio, so that it costs little. Standard library only."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WAIT_S = 25.0
"""Of a long poll, as the agent asks."""
_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


class Connection(asyncio.Protocol):
    """One kept connection; one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self.lock = asyncio.Lock()

    @classmethod
    async def open(cls, port: int) -> Connection:
        _, made = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("closed by the controller"))
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(_END)
        if not found:
            return
        at = head.lower().find(_LENGTH)
        length = int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0])
        if len(body) >= length and self._answer is not None and not self._answer.done():
            self._buffer = body[length:]
            self._answer.set_result((int(head[9:12]), body[:length]))

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Status and body. Raises ConnectionError."""
        if self._transport is None:
            raise ConnectionError("not connected")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


@dataclass
class Tally:
    """What happened while measuring."""

    measuring: bool = False
    latencies_s: dict[str, list[float]] = field(default_factory=dict)
    lags_s: list[float] = field(default_factory=list)
    """Planned moment to the moment of sending: the generator's own fault, not the controller's."""
    statuses: dict[str, int] = field(default_factory=dict)
    accepted_ever: int = 0
    """Reports answered 200, warm-up included."""

    def took(self, kind: str, status: int, seconds: float) -> None:
        if kind == "report" and status == 200:
            self.accepted_ever += 1
        if self.measuring:
            self.latencies_s.setdefault(kind, []).append(seconds)
            self.count(f"{kind} {status}")

    def count(self, what: str) -> None:
        if self.measuring:
            self.statuses[what] = self.statuses.get(what, 0) + 1


class Agent:
    """One simulated agent: its names, its token, its sequence."""

    def __init__(self, number: int, token: str, port: int, node: str = "") -> None:
        self.node = node or node_name(number)
        self._boot = f"boot-{number}"
        self._head = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\nAccept: application/json\r\n"
        self.sequence = 0

    def heartbeat(self) -> bytes:
        wall = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
        told = {"interval_s": 10.0, "wall_time": wall, "all_ok": True, "failing": []}
        return self._post("/v1/heartbeats", {**self._envelope(), **told})

    def report(self, *items: dict[str, Any]) -> bytes:
        self.sequence += 1
        named = {"outbox_id": f"outbox-{self._boot}-{os.getpid()}", "sequence": self.sequence}
        return self._post("/v1/reports", {**self._envelope(), **named, "items": items})

    def poll(self, wait_s: float) -> bytes:
        query = f"node={self.node}&instance_id=i-{self.node}&boot_id={self._boot}&wait_s={wait_s}"
        return f"GET /v1/orders?{query} HTTP/1.1\r\n{self._head}\r\n".encode()

    def _envelope(self) -> dict[str, Any]:
        names = {"node": self.node, "instance_id": f"i-{self.node}", "boot_id": self._boot}
        return {"version": 1, **names, "agent_version": "0.1.0"}

    def _post(self, path: str, body: dict[str, Any]) -> bytes:
        data = json.dumps(body, separators=(",", ":")).encode()
        head = (
            f"POST {path} HTTP/1.1\r\n{self._head}Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        return head.encode() + data


def node_name(number: int) -> str:
    """Also Slurm's name of the node, where the bench configures Slurm with as many."""
    return f"c{number:05d}"


def finding(gpu: int, code: int) -> dict[str, Any]:
    """A warning: recorded and watched, it drains nothing."""
    uuid = f"GPU-{gpu}"
    named = {"check": "gpu.thermal", "component": uuid, "code": str(code), "gpu_uuid": uuid, "gpu_minor": gpu}
    judged = {
        "verdict": "degraded",
        "severity": "warning",
        "remedy": "none",
        "summary": "slowed down by its temperature",
    }
    return {
        "kind": "finding",
        **named,
        **judged,
        "age_s": 0.01,
        "sticky": True,
        "evidence": {"celsius": 91, "limit": 87},
    }


def clear(gpu: int) -> dict[str, Any]:
    return {"kind": "clear", "check": "gpu.thermal", "component": f"GPU-{gpu}", "age_s": 0.01}


def progress(job_id: int, step: int) -> dict[str, Any]:
    told: dict[str, Any] = {
        "job_id": job_id,
        "uid": 1000,
        "restarts": 0,
        "step": step,
        "path": None,
        "detail": {},
        "age_s": 0.01,
    }
    return {"kind": "statement", "statement": "progress", **told}


async def fleet(plan: dict[str, Any], tally: Tally) -> None:
    """All agents at their heartbeat, with a long poll each, and a trickle of reports."""
    agents = [Agent(n, token, plan["port"]) for n, token in enumerate(plan["tokens"])]
    tasks = [asyncio.create_task(_live(agent, plan, tally)) for agent in agents]
    tasks.append(asyncio.create_task(_trickle(agents, plan, tally)))
    await _measured(plan, tally)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _live(agent: Agent, plan: dict[str, Any], tally: Tally) -> None:
    interval_s: float = plan["heartbeat_s"]
    next_s = time.monotonic() + random.uniform(0.0, interval_s)
    await asyncio.sleep(next_s - time.monotonic())
    beats = await Connection.open(plan["port"])
    poll = asyncio.create_task(_poll(agent, await Connection.open(plan["port"]), tally))
    try:
        while True:
            tally_lag(tally, next_s)
            await _timed("heartbeat", beats, agent.heartbeat(), tally)
            next_s += interval_s
            await asyncio.sleep(max(next_s - time.monotonic(), 0.0))
    finally:
        poll.cancel()
        beats.close()


async def _poll(agent: Agent, connection: Connection, tally: Tally) -> None:
    try:
        while True:
            status, _ = await connection.ask(agent.poll(WAIT_S))
            tally.count(f"poll {status}")
    finally:
        connection.close()


async def _trickle(agents: list[Agent], plan: dict[str, Any], tally: Tally) -> None:
    """Mostly progress of jobs; one in five a warning, or the end of one."""
    connection = await Connection.open(plan["port"])
    warned: list[Agent] = []
    next_s = time.monotonic()
    for number in range(10**9):
        next_s += 1 / plan["reports_per_s"]
        await asyncio.sleep(max(next_s - time.monotonic(), 0.0))
        agent = random.choice(agents)
        item = progress(1000 + number % 100, number)
        if number % 10 == 4:
            item = finding(number % 8, 0)
            warned.append(agent)
        elif number % 10 == 9:
            agent, item = warned.pop(), clear((number - 5) % 8)
        tally_lag(tally, next_s)
        await _timed("report", connection, agent.report(item), tally)


async def storm(plan: dict[str, Any], tally: Tally) -> None:
    """Closed loop: each connection sends one finding after another as soon as the last one is durable."""
    agents = [Agent(n, token, plan["port"]) for n, token in enumerate(plan["tokens"][: plan["connections"]])]
    tasks = [asyncio.create_task(_hammer(agent, plan, tally)) for agent in agents]
    await _measured(plan, tally)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _hammer(agent: Agent, plan: dict[str, Any], tally: Tally) -> None:
    connection = await Connection.open(plan["port"])
    number = 0
    try:
        while True:
            number += 1
            item = finding(number % 8, number if plan["all_new"] else 0)
            status = await _timed("report", connection, agent.report(item), tally)
            if status == 503:
                await asyncio.sleep(0.1)
    finally:
        connection.close()


async def _timed(kind: str, connection: Connection, request: bytes, tally: Tally) -> int:
    began_s = time.monotonic()
    async with connection.lock:
        status, _ = await connection.ask(request)
    tally.took(kind, status, time.monotonic() - began_s)
    return status


def tally_lag(tally: Tally, planned_s: float) -> None:
    if tally.measuring:
        tally.lags_s.append(max(time.monotonic() - planned_s, 0.0))


async def _measured(plan: dict[str, Any], tally: Tally) -> None:
    await asyncio.sleep(plan["warm_up_s"])
    tell({"state": "measuring"})
    tally.measuring = True
    await asyncio.sleep(plan["seconds"])
    tally.measuring = False
    tell({"state": "measured"})


def tell(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main(path: Path) -> None:
    plan = json.loads(path.read_text())
    if plan["core"] is not None:
        os.sched_setaffinity(0, {plan["core"]})
    gc.freeze()
    tally = Tally()
    began_s, used_s = time.monotonic(), time.process_time()
    asyncio.run({"fleet": fleet, "storm": storm}[plan["kind"]](plan, tally))
    busy = (time.process_time() - used_s) / (time.monotonic() - began_s)
    told = {"latencies_s": tally.latencies_s, "lags_s": tally.lags_s, "statuses": tally.statuses}
    tell({"state": "done", **told, "busy": busy, "accepted_ever": tally.accepted_ever})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
