"""A launcher asks for its rendezvous: identified by the kernel, answered by a stub controller over real HTTP."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.jobs import job_socket
from holdfast.agent.jobs.job_socket import JobSocket
from holdfast.agent.jobs.questions import parse_question
from holdfast.agent.jobs.rendezvous import ASKED_AT_ONCE, ASKED_PER_S, Rooms, read_answer
from holdfast.agent.node import processes
from holdfast.agent.node.job_cgroup import CgroupJob
from holdfast.agent.node.processes import Stepd, start_ticks
from holdfast.agent.sending.client import ControllerAnswer, ControllerClient, Controllers
from holdfast.agent.sending.statements import Malformed
from support.agent_bench import FakeController
from support.job_socket import Job, KnownJobs

ROOM: dict[str, Any] = {
    "room": "job-7",
    "url": "http://head:40001",
    "token": "s3cret-of-the-job",
    "group": 2,
    "start": "7.1",
    "min": 2,
    "max": 4,
    "sizes": [2, 4],
    "spares": 0,
}
LINE = {"v": 1, "kind": "room", **ROOM}
DEAD = "http://127.0.0.1:1"


def rooms_of(*urls: str) -> Rooms:
    controllers = Controllers(urls)
    return Rooms(lambda: ControllerClient(controllers, None, None), len(controllers))


class Desk:
    """A job socket that answers with the rendezvous of the given controllers; this process is in job 7."""

    def __init__(self, folder: Path, *urls: str) -> None:
        self.socket = JobSocket(folder, KnownJobs({7: frozenset({os.getpid()})}), lambda _item: None, rooms_of(*urls))
        self.socket.start()

    def ask(self, job_id: int = 7, restarts: int = 1) -> Any:
        with Job(self.socket.path) as job:
            return job.ask({"v": 1, "kind": "ask.room", "job_id": job_id, "restarts": restarts})


@pytest.fixture
def desk(tmp_path: Path, controller: FakeController) -> Iterator[Desk]:
    controller.room = lambda _question: (200, ROOM)
    desk = Desk(tmp_path, controller.url)
    yield desk
    desk.socket.stop()


def test_a_launcher_is_told_its_room_and_no_log_holds_the_token(
    desk: Desk, controller: FakeController, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        assert desk.ask() == LINE
    assert controller.rooms_asked == [{"job_id": 7, "uid": os.getuid(), "restarts": 1}]
    assert "job-7" in caplog.text
    assert ROOM["token"] not in caplog.text


def test_another_job_than_the_askers_is_refused_without_a_word_to_the_controller(
    desk: Desk, controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert desk.ask(8) == {"error": "not a job of this user on this node", "retry": True}
    monkeypatch.setattr(job_socket, "job_of_cgroup", lambda _pid: CgroupJob(7, os.getuid()))
    assert desk.ask(8) == {"error": "not this process's job", "retry": False}
    assert controller.rooms_asked == []


def test_what_was_answered_holds_while_the_controller_is_away_and_only_then(
    desk: Desk, controller: FakeController
) -> None:
    assert desk.ask() == LINE
    controller.room = lambda _question: (503, {"error": "no fresh view of Slurm", "retry": True})
    assert desk.ask() == LINE
    assert desk.ask(restarts=2) == {"error": "no fresh view of Slurm", "retry": True}
    controller.room = lambda _question: (409, {"error": "run 1 of job 7 is over", "retry": False})
    assert desk.ask() == {"error": "run 1 of job 7 is over", "retry": False}
    controller.room = lambda _question: (503, {})
    assert desk.ask()["retry"] is True


def test_a_job_that_was_given_the_same_id_is_not_told_the_room_of_the_earlier_one(controller: FakeController) -> None:
    controller.room = lambda _question: (200, ROOM)
    rooms = rooms_of(controller.url)
    assert rooms.of(7, 1000, 0, os.getpid()) == LINE
    controller.room = lambda _question: (503, {"error": "no fresh view of Slurm", "retry": True})
    time.sleep(0.05)  # more than a clock tick
    with subprocess.Popen(["sleep", "60"]) as later:
        try:
            assert rooms.of(7, 1000, 0, later.pid)["error"] == "no fresh view of Slurm"
            assert rooms.of(7, 1000, 0)["error"] == "no fresh view of Slurm"
            assert rooms.of(7, 1000, 0, os.getpid()) == LINE
        finally:
            later.kill()
    assert rooms.of(7, 1000, 0, later.pid)["error"] == "no fresh view of Slurm", "it is gone"


def test_a_launcher_that_is_started_again_in_its_step_is_told_the_room(
    controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller.room = lambda _question: (200, ROOM)
    rooms = rooms_of(controller.url)
    assert rooms.of(7, 1000, 0, os.getpid()) == LINE
    controller.room = lambda _question: (503, {"error": "away", "retry": True})
    time.sleep(0.05)
    monkeypatch.setattr(processes, "_stepd", lambda pid, _uids: Stepd(pid, start_ticks(pid) or 0, 7, "0"))
    with subprocess.Popen(["sleep", "60"]) as again:
        try:
            assert rooms.of(7, 1000, 0, again.pid) == LINE
        finally:
            again.kill()


def test_nobody_answers_and_another_controller_does(tmp_path: Path, controller: FakeController) -> None:
    controller.room = lambda _question: (200, ROOM)
    alone, two = rooms_of(DEAD), rooms_of(DEAD, controller.url)
    said = alone.of(7, 1000, 0)
    assert said["retry"] is True
    assert "does not answer" in str(said["error"])
    assert two.of(7, 1000, 0) == LINE


def test_a_controller_that_hangs_holds_up_nobody_else_on_the_socket(desk: Desk, controller: FakeController) -> None:
    go_on = threading.Event()

    def hang(_question: object) -> tuple[int, dict[str, Any]]:
        assert go_on.wait(30)
        return 200, ROOM

    controller.room = hang
    with Job(desk.socket.path) as launcher, Job(desk.socket.path) as other:
        launcher.say({"kind": "ask.room", "job_id": 7, "restarts": 1})
        controller.wait(lambda: len(controller.rooms_asked) == 1)
        began_s = time.monotonic()
        assert other.ask({"kind": "ask.standing"}) == {
            "v": 1,
            "kind": "standing",
            "mode": "observe",
            "fatal": "",
            "observed": "",
        }
        assert time.monotonic() - began_s < 15.0
        go_on.set()
        assert launcher.hear() == LINE


def test_questions_that_wait_are_bounded() -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    class Hangs(ControllerClient):
        def post(self, path: str, body: object) -> ControllerAnswer:
            begun.release()
            assert go_on.wait(30)
            return ControllerAnswer(200, ROOM)

    controllers = Controllers((DEAD,))
    rooms = Rooms(lambda: Hangs(controllers, None, None))
    said: list[Any] = []
    threads = [threading.Thread(target=lambda uid=n % 4: said.append(rooms.of(7, uid, 0))) for n in range(70)]
    for thread in threads:
        thread.start()
    deadline_s = time.monotonic() + 20
    while len(said) < 6 and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert said == [{"error": "too many questions at a time", "retry": True}] * 6
    assert all(begun.acquire(timeout=10) for _ in range(4))
    assert not begun.acquire(timeout=0.1), "more than four asked the controller at a time"
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert said.count(LINE) == 64


def test_one_user_who_asks_and_asks_is_told_to_wait_and_the_others_are_answered(controller: FakeController) -> None:
    controller.room = lambda _question: (409, {"error": {"message": "not yet"}, "retry": True})
    rooms = rooms_of(controller.url)
    began_s = time.monotonic()
    said = [rooms.of(7, 1000, 2**31 - 1)["error"] for _ in range(int(ASKED_AT_ONCE) + 200)]
    assert said.count("not yet") <= ASKED_AT_ONCE + ASKED_PER_S * (time.monotonic() - began_s)
    assert set(said) == {"not yet", "too many questions of this user"}
    assert len(controller.rooms_asked) == said.count("not yet")
    assert rooms.of(8, 1001, 0) == {"error": "not yet", "retry": True}


def test_one_users_questions_that_wait_leave_places_for_others() -> None:
    go_on = threading.Event()

    class Hangs(ControllerClient):
        def post(self, path: str, body: object) -> ControllerAnswer:
            assert go_on.wait(30)
            return ControllerAnswer(200, ROOM)

    controllers = Controllers((DEAD,))
    rooms = Rooms(lambda: Hangs(controllers, None, None))
    said: dict[int, list[Any]] = {1: [], 2: []}
    threads = [
        threading.Thread(target=lambda uid=uid: said[uid].append(rooms.of(7, uid, 0))) for uid in (1,) * 40 + (2,)
    ]
    for thread in threads:
        thread.start()
    deadline_s = time.monotonic() + 20
    while len(said[1]) < 8 and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert said[1] == [{"error": "too many questions at a time", "retry": True}] * 8
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert said[2] == [LINE]


@pytest.mark.parametrize(
    ("answer", "error", "retry"),
    [
        (ControllerAnswer(404, {"error": "job 7 is no elastic job", "retry": False}), "job 7 is no elastic job", False),
        (ControllerAnswer(404, {"error": {"code": "not_found", "message": "no such path"}}), "no such path", False),
        (
            ControllerAnswer(409, {"error": "not yet as Slurm shows it", "retry": True}),
            "not yet as Slurm shows it",
            True,
        ),
        (ControllerAnswer(409, {"error": "two\nlines"}), "two lines", False),
        (ControllerAnswer(401, {"error": {"message": "unknown token"}}), "unknown token", True),
        (ControllerAnswer(503, {}), "the controller answered 503", True),
        (ControllerAnswer(200, {}), "the controller's answer names no room", True),
        (ControllerAnswer(200, {**ROOM, "token": ""}), "the controller's answer names no room", True),
        (ControllerAnswer(200, {**ROOM, "url": 7}), "the controller's answer names no room", True),
    ],
)
def test_an_answer_without_a_room_is_one_line_and_whether_to_ask_again(
    answer: ControllerAnswer, error: str, retry: bool
) -> None:
    assert read_answer(answer) == {"error": error, "retry": retry}


def test_only_what_a_launcher_needs_is_handed_on() -> None:
    assert read_answer(ControllerAnswer(200, {**ROOM, "leader": True})) == LINE


@pytest.mark.parametrize("more", [{}, {"job_id": 0}, {"job_id": "7"}, {"job_id": 7, "restarts": -1}])
def test_a_question_that_names_no_job_is_refused(more: dict[str, object]) -> None:
    with pytest.raises(Malformed):
        parse_question(json.dumps({"kind": "ask.room", **more}).encode())


def test_a_malformed_question_is_not_to_be_asked_again(desk: Desk) -> None:
    with Job(desk.socket.path) as job:
        said = job.ask({"kind": "ask.room"})
    assert said == {"error": "malformed: job_id must be a whole number from 1", "retry": False}


def test_a_connection_that_asked_stays_however_long_it_is_silent(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_socket, "_ASKED_S", 0.0)
    with Job(desk.socket.path) as launcher, Job(desk.socket.path) as other:
        assert launcher.ask({"kind": "ask.room", "job_id": 7, "restarts": 1}) == LINE
        assert other.ask({"kind": "ask.standing"})
        assert other.hear() is None, "this one has spoken, and is silent"
        assert desk.socket.launchers.push(7, 1, b"{}\n") == [os.getpid()]
        assert launcher.hear() == {}
    deadline_s = time.monotonic() + 10
    while desk.socket.launchers.runs_of(7) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert desk.socket.launchers.runs_of(7) == []


def test_a_socket_without_a_controller_says_so(tmp_path: Path) -> None:
    desk = JobSocket(tmp_path, KnownJobs({7: frozenset({os.getpid()})}), lambda _item: None)
    desk.start()
    with Job(desk.path) as job:
        assert job.ask({"kind": "ask.room", "job_id": 7}) == {"error": "this agent knows no controller", "retry": False}
    desk.stop()
