"""A head node: Slurm with a given number of nodes that exist in its configuration only, and the real controller, pinned to one core."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tomli_w
from bench.kit import load, procs

from holdfast.descriptors import for_connections
from holdfast.model.errors import Unavailable
from holdfast.practice.cluster.cluster import Practice
from holdfast.store import SqlStore, open_store

CONTROLLER_CORE, GENERATOR_CORE = 0, 1
_UP_WITHIN_S = 60.0


@dataclass
class Head:
    """A running controller and what the bench knows of it."""

    practice: Practice
    store_url: str
    tokens: list[str]
    """Of agents ``c00000`` and on."""

    @property
    def pid(self) -> int:
        pid = self.practice.processes.main_pid("controller")
        if pid is None:
            raise Unavailable(f"the controller is gone, see {self.practice.folder}/log")
        return pid

    def kill(self) -> None:
        """kill -9, as a power loss of the head node would end it."""
        self.practice.processes.kill("controller")

    def run(self, plan: dict[str, Any]) -> Run:
        """Let the generator carry out a plan; the controller's CPU and memory are those of the measured part."""
        path = self.practice.folder / "plan.json"
        pinned = {"core": GENERATOR_CORE if (os.cpu_count() or 1) > 1 else None}
        path.write_text(
            json.dumps({**plan, **pinned, "port": self.practice.spec.controller_port, "tokens": self.tokens})
        )
        with subprocess.Popen([sys.executable, load.__file__, str(path)], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            began_s, before, waited_s = 0.0, procs.Cpu(0, 0), 0.0
            run = Run({}, 1.0, before, 0, 0.0)
            for line in process.stdout:
                told = json.loads(line)
                if told["state"] == "measuring":
                    began_s, before, waited_s = time.monotonic(), procs.cpu(self.pid), procs.waited_s(self.pid)
                elif told["state"] == "measured":
                    seconds, used = time.monotonic() - began_s, procs.cpu(self.pid) - before
                    waited_s = procs.waited_s(self.pid) - waited_s
                    run = Run({}, seconds, used, procs.pss_bytes(self.pid), max(waited_s, 0.0))
                else:
                    return replace(run, told=told)
        raise Unavailable("the load generator ended early")


@dataclass(frozen=True)
class Run:
    """Figures of one plan."""

    told: dict[str, Any]
    """The generator's report."""
    seconds: float
    cpu: procs.Cpu
    """The controller's in the measured time: its own, and that of the Slurm commands it ran."""
    pss_bytes: int
    waited_s: float
    """How long the controller was ready and other processes had its core: then latencies are theirs, not its own."""


@contextmanager
def head(
    *,
    agents: int,
    slurm_nodes: int,
    store_url: str | None,
    slurm_conf: str = "",
    tables: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[Head]:
    """Up and listening. ``store_url`` None: SQLite in the folder. ``slurm_conf``: more of Slurm's configuration, ``tables``: more of the
    controller's. Nothing is left afterwards."""
    procs.end_cleanly()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if for_connections(hard) < 2 * agents:
        raise Unavailable(f"the hard limit of open files is {hard}: {agents} agents need {2 * agents} and a third more")
    folder = Path(tempfile.mkdtemp(prefix="hfhead-", dir="/tmp"))
    folder.chmod(0o755)
    practice = Practice.create(folder, nodes=1, name="bench", extra_slurm_conf=_slurm_nodes(slurm_nodes) + slurm_conf)
    try:
        practice.up()
        url = store_url or f"sqlite:///{folder}/holdfast.db"
        made = Head(practice, url, _tokens(url, agents))
        _start(practice, url, tables or {})
        yield made
    finally:
        practice.down()
        shutil.rmtree(folder, ignore_errors=True)


def _slurm_nodes(count: int) -> str:
    """Nodes without a slurmd. Slurm is configured not to change their state, so that they are shown as idle."""
    if not count:
        return ""
    name = (
        f"NodeName=c[00000-{count - 1:05d}] NodeAddr=127.0.0.1 Port=9 CPUs=32 RealMemory=1024 Gres=gpu:8 State=UNKNOWN"
    )
    return f"SlurmdTimeout=0\n{name}\n"


def _tokens(url: str, count: int) -> list[str]:
    store: SqlStore = open_store(url)
    tokens = [f"bench-token-of-agent-{number}" for number in range(count)]

    def add(number: int) -> None:
        digest = hashlib.sha256(tokens[number].encode()).hexdigest()
        store.add_token("agent", load.node_name(number), digest, datetime.now(UTC))

    try:
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(add, range(count)))
    finally:
        store.close()
    return tokens


def _start(practice: Practice, url: str, tables: Mapping[str, Mapping[str, Any]]) -> None:
    table = {
        "cluster": {"name": "bench", "slurm_client": "commands", "slurm_conf": str(practice.slurm_conf)},
        "server": {"port": practice.spec.controller_port},
        "store": {"url": url},
        "mode": {"mode": "act"},
        "run": {"dir": str(practice.folder / "run")},
        **tables,
    }
    path = practice.folder / "etc" / "controller.toml"
    path.write_text(tomli_w.dumps(table))
    pin = ["taskset", "-c", str(CONTROLLER_CORE)] if (os.cpu_count() or 1) > 1 else []
    argv = [*pin, sys.executable, "-m", "holdfast.head"]
    practice.start_daemon("controller", [*argv, "controller", "--config", str(path)])
    practice.start_daemon("actor", [sys.executable, "-m", "holdfast.head", "actor", "--config", str(path)])
    _await_ready(f"{practice.controller_url}/readyz")


def _await_ready(url: str) -> None:
    until_s = time.monotonic() + _UP_WITHIN_S
    while time.monotonic() < until_s:
        try:
            with urllib.request.urlopen(url, timeout=2):  # noqa: S310 - loopback
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
    raise Unavailable("the controller is not ready in time")
