"""The real agent between a launcher and a controller (a few lines over HTTP in its place; scontrol is a script)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from support.agent_bench import FakeController, Folder
from support.job_socket import Job

pytestmark = pytest.mark.slow

ROOM: dict[str, Any] = {
    "room": "job-7",
    "url": "http://head:40001",
    "token": "s3cret-of-the-job",
    "group": 2,
    "start": "7.0",
}
LINE = {"v": 1, "kind": "room", **ROOM}
ASK = {"v": 1, "kind": "ask.room", "job_id": 7, "restarts": 0}
SLEEPS = "import time\ndef waits():\n    print(flush=True); time.sleep(600)\nwaits()\n"


def order(order_id: str, verb: str, **args: object) -> dict[str, Any]:
    told = {"id": order_id, "verb": verb, "args": {"job_id": 7, **args}}
    return {**told, "boot_id": "boot-1", "instance_id": "i-0abc", "expires_s": 60}


def leave(order_id: str) -> dict[str, Any]:
    return order(order_id, "ask_group_to_leave", restarts=0, reason="drain", deadline_s=90, target=2)


def outcome(controller: FakeController, order_id: str) -> dict[str, Any]:
    def said() -> list[dict[str, Any]]:
        return [item for item in controller.items("order_outcome") if item["order_id"] == order_id]

    controller.wait(lambda: bool(said()))
    return said()[0]


def connect(path: Path, within_s: float = 20.0) -> Job:
    """The agent may still be starting."""
    deadline_s = time.monotonic() + within_s
    while True:
        try:
            return Job(path)
        except OSError:
            assert time.monotonic() < deadline_s, "no agent listens"
            time.sleep(0.05)


def test_a_launcher_has_its_room_and_hears_of_its_leave_also_from_the_next_agent(
    folder: Folder, controller: FakeController
) -> None:
    controller.room = lambda _question: (200, ROOM)
    env = {**os.environ, "RANK": "2"}
    with subprocess.Popen([sys.executable, "-c", SLEEPS], env=env, stdout=subprocess.PIPE) as rank:
        assert rank.stdout is not None
        assert rank.stdout.readline()
        scontrol = folder.path / "scontrol"
        scontrol.write_text(f"#!/bin/sh\necho PID JOBID STEPID\necho {os.getpid()} 7 0\necho {rank.pid} 7 0\n")
        scontrol.chmod(0o755)
        folder.write_config(f'controllers = ["{controller.url}"]\nscontrol = "{scontrol}"')
        agent = folder.start()
        try:
            with connect(folder.path / "run" / "agent.sock") as launcher:
                assert launcher.ask(ASK) == LINE
                controller.give(leave("o1"))
                event = launcher.hear()
                assert (event["kind"], event["reason"], event["target"]) == ("event", "drain", 2)
                assert event["deadline"].endswith("Z")
                said = outcome(controller, "o1")
                assert (said["ok"], said["detail"]) == (True, {"launchers": [os.getpid()]})

                controller.give(order("o2", "collect_stacks"))
                stacks = outcome(controller, "o2")
                (mine,) = [each for each in stacks["detail"]["ranks"] if each["rank"] == 2]
                assert (mine["pid"], mine["frames"][0]) == (rank.pid, "waits (<string>:3)")

                agent.kill()
                agent.wait()
                assert launcher.hear() is None
            agent = folder.start()
            with connect(folder.path / "run" / "agent.sock") as launcher:
                assert launcher.ask(ASK) == LINE
                controller.give(leave("o3"))
                assert launcher.hear()["reason"] == "drain"
            controller.wait(lambda: len(controller.heartbeats) > 1)
            controller.give(leave("o4"))
            said = outcome(controller, "o4")
            assert (said["ok"], said["summary"]) == (False, "no launcher of run 0 of job 7 listens on this node")
        finally:
            agent.kill()
            agent.wait()
            rank.kill()
    assert ROOM["token"] not in folder.agent_log
    assert "Traceback" not in folder.agent_log
