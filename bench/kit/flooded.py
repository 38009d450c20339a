"""A real controller without Slurm, in its own process and folder, and its response times for honest callers during a flood."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bench.kit import flood, procs

from holdfast.agent.sending.client import ControllerClient, Controllers
from holdfast.api.callers.auth import hash_token
from holdfast.model.errors import Unavailable
from holdfast.store import SqlStore, open_store

_UP_WITHIN_S = 60.0
HONEST = 5
BEAT_S = 1.0
HEALTH_S = 0.2
_STRANGER = "from holdfast.api.transport.connections import Bounds; Bounds.many_behind = lambda _, address: address == '127.0.0.1'"
"""Loopback stands for many clients, but for one address of it."""
VIEWER, STOLEN = "viewer-token", "stolen-token"


@dataclass
class Seen:
    """Measurements of honest callers."""

    health_s: list[float] = field(default_factory=list)
    """How long ``/healthz`` took, each time on a new connection."""
    health_failed: list[str] = field(default_factory=list)
    beats: int = 0
    beats_s: list[float] = field(default_factory=list)
    beats_refused: list[str] = field(default_factory=list)
    memory_bytes: list[int] = field(default_factory=list)
    """Resident, twice a second."""


class Flooded:
    """The controller. ``etc``: a folder with tls.pem, tls.key and ca.pem; None: without TLS."""

    def __init__(self, folder: Path, etc: Path | None, agents: int = HONEST, *, stranger: bool = False) -> None:
        """``stranger``: the flood comes from one separate address, as one client."""
        self.stranger = stranger
        self.folder, self.etc, self.agents = folder, etc, max(agents, HONEST)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = int(listener.getsockname()[1])
        self.url = f"{'https' if etc is not None else 'http'}://localhost:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        if self._process.poll() is not None:
            raise Unavailable(f"the controller is gone, see {self.folder}/log")
        return self._process.pid

    @contextmanager
    def up(self, *before: str) -> Iterator[Flooded]:
        """Start the controller; yields once it answers and an agent of each node has reported.

        ``before``: words before its command, such as ``taskset -c 0``."""
        url = f"sqlite:///{self.folder}/holdfast.db"
        store: SqlStore = open_store(url)
        tokens = [("agent", f"n{number}", f"agent-token-{number}") for number in range(self.agents)]
        tokens += [("agent", "bad", STOLEN), ("viewer", "eve", VIEWER)]
        now = datetime.now(UTC)
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(lambda each: store.add_token(each[0], each[1], hash_token(each[2]), now), tokens))
        store.close()
        tls = f'tls_cert = "{self.etc}/tls.pem"\ntls_key = "{self.etc}/tls.key"\n' if self.etc is not None else ""
        config = self.folder / "controller.toml"
        config.write_text(
            f'[server]\nhost = "127.0.0.1"\nport = {self.port}\n{tls}[store]\nurl = "{url}"\n[run]\ndir = "{self.folder}"\n'
        )
        start = _STRANGER if self.stranger else "pass"
        run = f"import runpy, sys; {start}; sys.argv = sys.argv[1:]; runpy.run_module(sys.argv[0], run_name='__main__')"
        command = [*before, sys.executable, "-c", run, "holdfast.head", "controller", "--config", str(config)]
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        try:
            self._await_answer()
            for number in range(self.agents):
                agent = self._agent(number)
                assert self._beat(agent, number) is None
                agent.close()
            yield self
        finally:
            self._process.terminate()
            self._process.wait(20)

    def _await_answer(self) -> None:
        until_s = time.monotonic() + _UP_WITHIN_S
        while True:
            try:
                self.health()
                return
            except OSError as error:
                if time.monotonic() > until_s:
                    raise Unavailable(f"the controller does not answer: {error}, see {self.folder}/log") from error
                time.sleep(0.1)

    def health(self) -> float:
        """Seconds of one ``/healthz`` on a new connection. Raises OSError."""
        began_s = time.monotonic()
        if self.etc is None:
            made = http.client.HTTPConnection("localhost", self.port, timeout=30)
        else:
            trust = ssl.create_default_context(cafile=f"{self.etc}/ca.pem")
            made = http.client.HTTPSConnection("localhost", self.port, timeout=30, context=trust)
        try:
            made.request("GET", "/healthz")
            answer = made.getresponse()
            answer.read()
            if answer.status != 200:
                raise OSError(f"status {answer.status}")
        except http.client.HTTPException as error:
            raise OSError(repr(error)) from error
        finally:
            made.close()
        return time.monotonic() - began_s

    def _agent(self, number: int) -> ControllerClient:
        token = self.folder / f"token-{number}"
        token.write_text(f"agent-token-{number}")
        return ControllerClient(Controllers((self.url,)), token, self.etc / "ca.pem" if self.etc is not None else None)

    def _beat(self, agent: ControllerClient, number: int) -> str | None:
        """Why it was not taken."""
        names = {"version": 1, "node": f"n{number}", "instance_id": "i", "boot_id": "b", "agent_version": "0.1"}
        try:
            answer = agent.post("/v1/heartbeats", {**names, "interval_s": 10.0})
        except Unavailable as error:
            return str(error)
        return None if answer.status == 200 else f"{answer.status} {answer.error}"

    def _be_known(self, agent: ControllerClient, number: int) -> None:
        """Its connection is known before the flood, as an agent's is. Raises Unavailable where a flood before keeps it out."""
        until_s = time.monotonic() + _UP_WITHIN_S
        while (why := self._beat(agent, number)) is not None:
            if time.monotonic() > until_s:
                raise Unavailable(f"an agent does not come in: {why}")
            time.sleep(0.5)

    def _ask_health(self, seen: Seen, stop: threading.Event) -> None:
        while not stop.wait(HEALTH_S):
            try:
                seen.health_s.append(self.health())
            except OSError as error:
                seen.health_failed.append(repr(error))

    def _keep_beating(self, seen: Seen, stop: threading.Event, number: int, agent: ControllerClient) -> None:
        while not stop.wait(BEAT_S):
            began_s, why = time.monotonic(), self._beat(agent, number)
            seen.beats_s.append(time.monotonic() - began_s)
            if why is None:
                seen.beats += 1
            else:
                seen.beats_refused.append(why)
        agent.close()

    def _read_memory(self, seen: Seen, stop: threading.Event) -> None:
        while not stop.wait(0.5):
            seen.memory_bytes.append(procs.pss_bytes(self.pid))

    @contextmanager
    def watched(self) -> Iterator[Seen]:
        """Honest callers at work, until the end of the block."""
        seen, stop = Seen(), threading.Event()
        threads = [threading.Thread(target=each, args=(seen, stop)) for each in (self._ask_health, self._read_memory)]
        for number in range(HONEST):
            agent = self._agent(number)
            self._be_known(agent, number)
            threads.append(threading.Thread(target=self._keep_beating, args=(seen, stop, number, agent)))
        for each in threads:
            each.start()
        try:
            yield seen
        finally:
            stop.set()
            for each in threads:
                each.join()

    def flood(self, kind: str, seconds: float, *before: str) -> dict[str, int]:
        """The answers that the flood got, counted by kind. ``before``: words before its command."""
        token = {"viewer": VIEWER, "agent": STOLEN}.get(kind, "")
        source = "127.0.0.2" if self.stranger else "127.0.0.1"
        plan = {
            "kind": kind,
            "source": source,
            "port": self.port,
            "seconds": seconds,
            "tls": self.etc is not None,
            "token": token,
        }
        path = self.folder / "plan.json"
        path.write_text(json.dumps({**plan, "node": "bad"}))
        command = [*before, sys.executable, flood.__file__, str(path)]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, timeout=seconds + 60, check=True, env=dict(os.environ), text=True
        )
        return dict(json.loads(done.stdout))
