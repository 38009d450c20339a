"""Questions to an agent: answered with the asker's rights and in time, and never mixed up with what jobs state."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.agent.findings.finding_state import OpenFindings
from holdfast.agent.findings.trust import Weighed
from holdfast.agent.jobs import questions
from holdfast.agent.jobs.job_socket import JobSocket
from holdfast.agent.jobs.questions import Answers, parse_question
from holdfast.agent.node.processes import SlurmNode
from holdfast.agent.node.readers import ReaderPool
from holdfast.agent.sending.outbox import OutboxItem
from holdfast.agent.sending.statements import Malformed
from holdfast_checks.probes.child import Children
from holdfast_checks.result import Remedy, Result, Severity

NOTHING = {"v": 1, "kind": "standing", "mode": "observe", "fatal": "", "observed": ""}


class NoSlurm(SlurmNode):
    def __init__(self) -> None:
        pass


class Desk:
    """A socket as the agent has it."""

    def __init__(self, folder: Path) -> None:
        self.items: list[OutboxItem] = []
        self.socket = JobSocket(folder, NoSlurm(), self.items.append)
        self.socket.start()

    def ask(self, question: object) -> object:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            connection.connect(str(self.socket.path))
            connection.sendall(json.dumps(question).encode() + b"\n")
            with connection.makefile("rb") as lines:
                return json.loads(lines.readline())


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path / "run")
    yield desk
    desk.socket.stop()


def bad(severity: Severity, check: str = "gpu.count", component: str = "GPU-1", code: str = "") -> Weighed:
    return Weighed(Result.finding(check, severity, Remedy.REPLACE, component, failed=True, code=code))


def test_only_fatal_findings_that_stand_are_named() -> None:
    standing = OpenFindings()
    assert not standing.fatal
    standing.judge([bad(Severity.DEGRADED, "efa.counters", "efa0"), bad(Severity.WARNING, "host.disk")], 0.0)
    assert not standing.fatal
    standing.judge([bad(Severity.FATAL, code="lost")], 1.0)
    assert standing.fatal == ("gpu.count GPU-1 lost",)
    again = OpenFindings()
    again.load(standing.dump())
    assert again.fatal == standing.fatal
    again.judge([Weighed(Result.ok("gpu.count", "GPU-1"))], 2.0)
    assert not again.fatal


def test_the_answer_follows_what_stands(desk: Desk) -> None:
    assert desk.ask({"v": 1, "kind": "ask.standing"}) == NOTHING
    desk.socket.answers.fatal = ("gpu.count GPU-1", "nvswitch.fatal node 20034")
    answer = desk.ask({"v": 1, "kind": "ask.standing", "later": "field"})
    found = "gpu.count GPU-1; nvswitch.fatal node 20034"
    assert answer == {**NOTHING, "observed": found}, "no verdict of the controller: the job starts"
    desk.socket.answers.gate.answered({"leader": True, "keep_off": "inc1"}, time.monotonic())
    answer = desk.ask({"v": 1, "kind": "ask.standing"})
    assert answer == {"v": 1, "kind": "standing", "mode": "act", "fatal": found, "incident": "inc1"}
    assert desk.items == []


def write_checkpoints(folder: Path) -> None:
    code = (
        "import sys; from holdfast_checkpoint import Checkpointer; c = Checkpointer(sys.argv[1]); c.resume()\n"
        "for step in (5, 9):\n with c.save(step) as folder: (folder / 'x').write_bytes(b'1')\n"
    )
    environment = {"PATH": os.environ["PATH"], "HOLDFAST_AGENT_SOCKET": "/nowhere"}
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, env=environment)


@pytest.mark.slow
def test_the_newest_complete_checkpoint_is_found(desk: Desk, tmp_path: Path) -> None:
    folder = tmp_path / "ckpt"
    folder.mkdir()
    question = {"v": 1, "kind": "ask.latest", "job_id": 7, "restarts": 1, "dir": str(folder), "within_ms": 4000}
    assert desk.ask(question) == {"v": 1, "kind": "latest", "path": None}
    write_checkpoints(folder)
    answer = desk.ask(question)
    assert isinstance(answer, dict)
    assert answer["kind"] == "latest"
    assert Path(answer["path"]).parent == folder
    assert "9-jlocal" in answer["path"]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take another user's rights")
def test_a_directory_is_looked_at_with_the_askers_rights(short_folder: Path) -> None:
    folder = short_folder / "roots-own"
    folder.mkdir(mode=0o700)
    write_checkpoints(folder)
    answers = Answers()
    assert json.loads(answers.latest(str(folder), 0, 4.0))["path"].startswith(str(folder))
    assert "error" in json.loads(answers.latest(str(folder), 65534, 4.0))
    folder.chmod(0o755)
    assert json.loads(answers.latest(str(folder), 65534, 4.0))["path"].startswith(str(folder))
    assert "error" in json.loads(answers.latest(str(folder), 4_000_000_000, 4.0))


@pytest.mark.parametrize(
    ("program", "answer"),
    [
        ("sleep 30", "no answer from the file system in time"),
        ("echo /somewhere; exit 3", "nothing can be said of the directory now"),
        ("echo relative", "nothing can be said of the directory now"),
        ("exit 0", "nothing can be said of the directory now"),
        ("kill -9 $$", "nothing can be said of the directory now"),
    ],
)
@pytest.mark.slow
def test_what_goes_wrong_is_no_answer(
    program: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{program.replace('sleep', 'exec sleep')}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert json.loads(Answers().latest("/x", os.geteuid(), 0.3)) == {"error": answer}


@pytest.mark.slow
def test_questions_of_a_user_beyond_those_that_wait_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    monkeypatch.setattr(questions, "_LOOK", "open(sys.argv[1]).read()")
    children = Children(kill=lambda pid: None)
    answers, said = Answers(readers=ReaderPool(children)), []
    threads = [
        threading.Thread(target=lambda: said.append(json.loads(answers.latest(str(gate), os.geteuid(), 1.0))["error"]))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10.0)
    assert sum(f"reads of uid {os.geteuid()} wait already" in each for each in said) >= 3
    assert len(said) == 8
    assert len(children.left_behind()) == 1, "no further process of that user, whatever is asked"
    gate.write_text("it answers")
    while children.left_behind():
        time.sleep(0.02)


def test_a_statement_is_no_question_and_a_question_needs_its_fields(desk: Desk) -> None:
    assert parse_question(b'{"kind":"progress","job_id":7,"step":1}') is None
    assert parse_question(b"\xff") is None
    for wrong in ({}, {"dir": "relative"}, {"dir": "/a\nb"}, {"dir": 7}, {"dir": "/x", "within_ms": "1"}):
        with pytest.raises(Malformed):
            parse_question(json.dumps({"kind": "ask.latest", **wrong}).encode())
    hasty = parse_question(b'{"kind":"ask.latest","dir":"/x","within_ms":1}')
    endless = parse_question(b'{"kind":"ask.latest","dir":"/x","within_ms":99999999}')
    assert hasty is not None
    assert endless is not None
    assert (hasty.within_s, endless.within_s) == (0.05, 5.0)
    assert desk.ask({"kind": "ask.latest"}) == {"error": "malformed: dir is missing", "retry": False}
    assert desk.ask({"kind": "ask.else"}) == {"error": "malformed: unknown kind", "retry": False}
