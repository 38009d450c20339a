"""The launcher and the agent of its node. Most tests have a stand-in for the agent's end of the protocol; one has the real agent."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.agent_bench import FakeController, Folder
from support.launching import AWARE, ELEMENT, ROOM, SHOW, fake_scontrol, launched, python, room_agent

pytestmark = pytest.mark.slow

WAITS = {"error": "no fresh view of Slurm", "retry": True}


def test_a_group_is_given_its_room(tmp_path: Path) -> None:
    with room_agent(tmp_path, WAITS, ROOM) as agent, launched(tmp_path, *python(SHOW), **ELEMENT) as launch:
        assert launch.end() == 0
    (env,) = launch.shown
    assert {
        name: env[name]
        for name in sorted(env)
        if name.startswith(("HOLDFAST_G", "HOLDFAST_M", "HOLDFAST_Q", "HOLDFAST_A"))
    } == {
        "HOLDFAST_ADDRESS": "127.0.0.1",
        "HOLDFAST_AGENT_SOCKET": str(tmp_path / "agent.sock"),
        "HOLDFAST_ALLOWED_GROUPS": "2,4",
        "HOLDFAST_GROUP": "2",
        "HOLDFAST_MAX_GROUPS": "4",
        "HOLDFAST_MIN_GROUPS": "2",
        "HOLDFAST_QUORUM": ROOM["url"],
        "HOLDFAST_QUORUM_TOKEN": ROOM["token"],
    }
    assert (env["TORCHFT_LIGHTHOUSE"], env["HOLDFAST_INCARNATION"]) == (ROOM["url"], "73.1")
    assert agent.asked == [{"v": 1, "kind": "ask.room", "job_id": 73, "restarts": 1}] * 2
    assert launch.lines == ["group 2: no room yet: no fresh view of Slurm"]


@pytest.mark.parametrize(
    ("answer", "comment", "status", "said"),
    [
        (
            {"error": "a room of another user", "retry": False},  # word: the agent's answer
            "Comment=holdfast elastic=2:4",
            93,
            "a room of another user",  # word: the agent's answer
        ),
        ({"error": "job 73 is not elastic", "retry": False}, "Comment=holdfast", 0, "{"),
        (None, "Comment=holdfast elastic=2:4", 85, "no room within 1 s: no agent answers at "),
        (None, "Name=x", 0, "{"),
    ],
)
def test_without_a_room(tmp_path: Path, answer: dict[str, Any] | None, comment: str, status: int, said: str) -> None:
    """An elastic group never trains alone; a job that is not elastic is simply run. A script gives Slurm's answer."""
    with ExitStack() as stack:
        if answer is not None:
            stack.enter_context(room_agent(tmp_path, answer))
        env = {**ELEMENT, "PATH": fake_scontrol(tmp_path, comment)}
        launch = stack.enter_context(launched(tmp_path, "--wait", "1", *python(SHOW), **env))
        assert launch.end() == status
    assert said in launch.said
    assert ["HOLDFAST_QUORUM" in env for env in launch.shown] == [False] * (status == 0)


def test_a_room_named_in_the_environment_serves_where_there_is_no_agent(tmp_path: Path) -> None:
    with launched(
        tmp_path, *python(SHOW), **ELEMENT, HOLDFAST_QUORUM="http://127.0.0.1:9", HOLDFAST_QUORUM_TOKEN="t"
    ) as launch:
        assert launch.end() == 0
    assert (launch.shown[0]["HOLDFAST_QUORUM"], launch.shown[0]["HOLDFAST_GROUP"]) == ("http://127.0.0.1:9", "2")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 85), (signal.SIGINT, 130)])
def test_a_signal_ends_the_search(tmp_path: Path, number: signal.Signals, status: int) -> None:
    with room_agent(tmp_path, WAITS), launched(tmp_path, "echo", "a rank", **ELEMENT) as launch:
        launch.until_said("no room yet")
        launch.signal(number)
        assert launch.end() == status
    assert "a rank" not in launch.said


def test_an_event_is_why_the_group_leaves(tmp_path: Path) -> None:
    deadline = (datetime.now(UTC) + timedelta(seconds=60)).isoformat()
    with room_agent(tmp_path, ROOM) as agent, launched(tmp_path, *python(AWARE), **ELEMENT) as launch:
        launch.until_said("step")
        agent.push(reason="drain", deadline=deadline, target=3)
        assert launch.end() == 85
    assert f'left USR1 {{"reason":"drain","deadline":"{deadline}","target":3}}' in launch.said
    assert any("asked to leave within 60 s: drain" in line or "within 59 s: drain" in line for line in launch.lines)


def test_an_events_deadline_is_kept(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGUSR1, lambda *_: None); print('up', flush=True)\nwhile True: time.sleep(1)"
    with room_agent(tmp_path, ROOM) as agent, launched(tmp_path, *python(code), **ELEMENT) as launch:
        launch.until_said("up")
        agent.push(reason="spot", deadline=(datetime.now(UTC) + timedelta(seconds=1)).isoformat())
        began_s = time.monotonic()
        assert launch.end() == 85
        assert time.monotonic() - began_s < 15


def test_an_agent_that_is_restarted_disturbs_nobody_and_is_heard_again(tmp_path: Path) -> None:
    code = AWARE.replace('print("step", flush=True)', 'print("step", os.getpid(), flush=True)')
    with launched(tmp_path, *python(code), **ELEMENT) as launch:
        with room_agent(tmp_path, ROOM):
            launch.until_said("step")
        time.sleep(0.3)
        assert launch.process.poll() is None
        with room_agent(tmp_path, WAITS, ROOM) as agent:  # it does not know yet to which job this launcher belongs
            launch.until(lambda: len(agent.asked) == 1)
            agent.push(reason="scale", deadline=None, target=2)
            assert launch.end() == 85
    assert launch.said.count("step") == 1
    assert '"reason":"scale"' in launch.said


def test_the_real_agent_gives_the_room_and_the_order_to_leave(
    folder: Folder, controller: FakeController, tmp_path: Path
) -> None:
    """The controller is a stub over HTTP, scontrol a script that knows the launcher's process."""
    room = {name: value for name, value in ROOM.items() if name not in ("v", "kind")}
    controller.room = lambda _question: (200, room)
    scontrol = folder.path / "scontrol"
    scontrol.write_text(f"#!/bin/sh\necho PID JOBID STEPID\ncat {tmp_path}/pids\n")
    scontrol.chmod(0o755)
    (tmp_path / "pids").touch()
    folder.write_config(f'controllers = ["{controller.url}"]\nscontrol = "{scontrol}"')
    agent = folder.start()
    socket_path = str(folder.path / "run" / "agent.sock")
    try:
        with launched(
            tmp_path,
            *python(AWARE),
            **{
                **ELEMENT,
                "HOLDFAST_AGENT_SOCKET": socket_path,
                "PATH": fake_scontrol(tmp_path, "Comment=holdfast elastic=2:4"),
            },
        ) as launch:
            (tmp_path / "pids").write_text(f"{launch.process.pid} 73 0\n")
            launch.until_said("step")
            order = {
                "id": "o1",
                "verb": "ask_group_to_leave",
                "boot_id": "boot-1",
                "instance_id": "i-0abc",
                "expires_s": 60,
            }
            controller.give(
                {**order, "args": {"job_id": 73, "restarts": 1, "reason": "drain", "deadline_s": 90, "target": 3}}
            )
            assert launch.end() == 85
        assert 'left USR1 {"reason":"drain"' in launch.said
        assert '"target":3' in launch.said
    finally:
        agent.kill()
        agent.wait()
