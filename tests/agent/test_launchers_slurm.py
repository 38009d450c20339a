"""A launcher and its rank in a step of a real Slurm: bound by slurmd's answer, ordered to leave, and their stacks read."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.jobs.job_socket import JobSocket
from holdfast.agent.jobs.launchers import ask_group_to_leave
from holdfast.agent.jobs.rendezvous import Rooms
from holdfast.agent.node.processes import SlurmNode
from holdfast.agent.orders.orders import OrderHandler, OrderResult, ReceivedOrder
from holdfast.agent.orders.stacks import collect_stacks
from holdfast.agent.sending.client import ControllerClient, Controllers
from holdfast.practice.cluster.cluster import Practice
from support.agent_bench import FakeController

pytestmark = pytest.mark.slurm

RANK = "import time\ndef all_reduce():\n    time.sleep(600)\nall_reduce()\n"
LAUNCHER = """
import json, os, socket, subprocess, sys
sock, told, rank = sys.argv[1:]  # word: a name
agent = socket.socket(socket.AF_UNIX)
agent.connect(sock)
ask = {"v": 1, "kind": "ask.room", "job_id": int(os.environ["SLURM_JOB_ID"]), "restarts": 0}  # word: a wire field
lines = agent.makefile("r")
while True:
    agent.sendall(json.dumps(ask).encode() + b"\\n")
    if "error" not in json.loads(lines.readline()):
        break
group = subprocess.Popen([sys.executable, rank], env={**os.environ, "RANK": "0"}, start_new_session=True)
open(told, "w").write(lines.readline())  # word: a name
group.kill()
"""


@pytest.fixture
def cluster() -> Iterator[Practice]:
    with tempfile.TemporaryDirectory(prefix="hf") as folder:
        Path(folder).chmod(0o755)
        practice = Practice.create(Path(folder) / "c", nodes=1, gpus=1, cpus=2)
        try:
            practice.up()
            yield practice
        finally:
            practice.down()


def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.1)


def carry_out(verb: OrderHandler, **args: object) -> OrderResult:
    return verb(ReceivedOrder("o1", "", args, "", "", time.monotonic() + 60))


def test_a_group_in_a_step_gets_its_room_is_seen_and_leaves(
    cluster: Practice, controller: FakeController, tmp_path: Path
) -> None:
    controller.room = lambda _question: (200, {"room": "job-1", "url": "http://head:40001", "token": "secret"})
    slurm = SlurmNode("n1", cluster.folder / "run" / "slurmd.n1.pid", "scontrol", cluster.slurm_conf)
    rooms = Rooms(lambda: ControllerClient(Controllers((controller.url,)), None, None))
    desk = JobSocket(cluster.folder / "sock", slurm, lambda _item: None, rooms)
    desk.start()
    try:
        told = cluster.folder / "told"
        for name, code in (("launcher.py", LAUNCHER), ("rank.py", RANK)):
            (cluster.folder / name).write_text(code)
        command = f"srun {sys.executable} {cluster.folder}/launcher.py {desk.path} {told} {cluster.folder}/rank.py\n"
        job = cluster.sbatch(command, "-N1", "-n1")
        until(lambda: desk.launchers.runs_of(job) == [0] and bool(controller.rooms_asked))
        assert {(q["job_id"], q["uid"]) for q in controller.rooms_asked} == {(job, os.getuid())}

        def seen() -> list[dict[str, Any]]:
            return list(carry_out(collect_stacks(slurm), job_id=job).detail["ranks"])

        until(lambda: any(each["rank"] == 0 and "all_reduce" in each.get("frames", [""])[0] for each in seen()))
        ranks = {each["rank"]: each["pid"] for each in seen()}
        assert set(ranks) == {0, None}, "the launcher is no rank"

        done = carry_out(ask_group_to_leave(desk.launchers), job_id=job, restarts=0, reason="scale", target=1)
        assert (done.ok, done.detail) == (True, {"launchers": [ranks[None]]})
        until(told.exists)
        until(lambda: "scale" in told.read_text())
        until(lambda: desk.launchers.runs_of(job) == [])
    finally:
        desk.stop()
