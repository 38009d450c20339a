"""torchrun's elastic mode, for comparison: three agents of one worker each, one agent and its worker killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.kit.procs import tree

from holdfast.practice.cluster.processes import signal_all

_WORKER = """
import json, os, sys, time
from datetime import timedelta
import torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(seconds=10))
path = sys.argv[1] + "/" + os.environ["GROUP"] + ".jsonl"
step = 0
while True:
    dist.all_reduce(torch.ones(1000))
    step += 1
    with open(path, "a") as log:
        log.write(json.dumps({"at_s": time.time(), "world": dist.get_world_size(), "pid": os.getpid()}) + "\\n")
    time.sleep(0.05)
"""
_AGENTS = 3
_BACK_WITHIN_S = 300.0
_SETTLED_S = 3.0


def kill_an_agent() -> float:
    """Seconds from the kill to the next step of the two others. Raises TimeoutError after five minutes."""
    with tempfile.TemporaryDirectory(prefix="hftorchrun-", dir="/tmp") as name:
        folder = Path(name)
        (folder / "worker.py").write_text(_WORKER)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        agents = [_agent(folder, port, group) for group in range(_AGENTS)]
        try:
            _wait(agents, lambda: all(_steps_s(folder, g, _AGENTS, 0.0) for g in range(_AGENTS)))
            time.sleep(_SETTLED_S)
            began_s = time.time()
            _kill(agents[-1])
            left = agents[:-1]
            _wait(left, lambda: all(_steps_s(folder, g, _AGENTS - 1, began_s) for g in range(_AGENTS - 1)))
            return max(min(_steps_s(folder, g, _AGENTS - 1, began_s)) for g in range(_AGENTS - 1)) - began_s
        finally:
            for agent in agents:
                _kill(agent)


def _agent(folder: Path, port: int, group: int) -> subprocess.Popen[bytes]:
    argv = [
        sys.executable,
        *["-W", "ignore", "-m", "torch.distributed.run", "--nproc-per-node=1"],
        f"--nnodes=2:{_AGENTS}",
    ]
    argv += ["--max-restarts=10", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=bench"]
    argv.append(f"--rdzv-conf=is_host={int(group == 0)}")  # who has their store must live: all of them end with it
    # Without it the restarted workers of torch 2.13 never find each other again.
    env = {**os.environ, "GROUP": str(group), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}
    with (folder / f"{group}.log").open("w") as log:
        return subprocess.Popen(
            [*argv, str(folder / "worker.py"), str(folder)], env=env, stdout=log, stderr=log, start_new_session=True
        )


def _kill(agent: subprocess.Popen[bytes]) -> None:
    """Kill the agent, and its worker, which runs in another session."""
    signal_all(tree(agent.pid) if agent.poll() is None else [], signal.SIGKILL)
    agent.wait()


def _lines(folder: Path, group: int) -> list[dict[str, Any]]:
    file = folder / f"{group}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")] if file.exists() else []


def _steps_s(folder: Path, group: int, world: int, since_s: float) -> list[float]:
    """When this group finished steps in a world of that size."""
    return [line["at_s"] for line in _lines(folder, group) if line["world"] == world and line["at_s"] > since_s]


def _wait(agents: list[subprocess.Popen[bytes]], ready: Callable[[], bool]) -> None:
    until_s = time.monotonic() + _BACK_WITHIN_S
    while not ready():
        if any(agent.poll() is not None for agent in agents):
            raise TimeoutError("torchrun ended where it should have continued")
        if time.monotonic() > until_s:
            raise TimeoutError(f"torchrun did not come back within {_BACK_WITHIN_S:.0f} s")
        time.sleep(0.2)
