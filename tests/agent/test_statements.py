"""Jobs' reports: bound to the speaker that the kernel names, bounded, and not trusted beyond that."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from holdfast.agent.jobs import job_socket
from holdfast.agent.jobs.job_socket import JobSocket
from holdfast.agent.node.job_cgroup import CgroupJob
from holdfast.agent.node.processes import SlurmNode, parse_listpids
from holdfast.agent.orders.save_signals import SaveSignals
from holdfast.agent.sending.outbox import OutboxItem
from holdfast.agent.sending.statements import Ledger, LineRate, Malformed, parse
from holdfast.model.errors import Unavailable
from support.job_socket import KnownJobs

SAVED = {
    "v": 1,
    "kind": "checkpoint.saved",
    "job_id": 7,
    "restarts": 1,
    "run": "7r1",
    "step": 5,
    "path": "/c/5",
    "bytes": 9,
}


class Desk:
    """A running socket and what it received."""

    def __init__(self, folder: Path, jobs: Mapping[int, frozenset[int]] | None) -> None:
        self.items: list[OutboxItem] = []
        self.slurm = KnownJobs(jobs)
        self.signals = SaveSignals()
        self.socket = JobSocket(folder, self.slurm, self.items.append, save_signals=self.signals)
        self.socket.start()

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(3)
        connection.connect(str(self.socket.path))
        return connection

    def say(self, *lines: object) -> str:
        """Send lines, end, and return the answers."""
        with self.connect() as connection:
            for line in lines:
                data = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
                connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
        return answer.decode()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path, {7: frozenset({os.getpid()})})
    yield desk
    desk.socket.stop()


def test_a_jobs_word_reaches_the_outbox_with_the_kernels_uid(desk: Desk) -> None:
    register = {
        "v": 1,
        "kind": "checkpoint.register",
        "job_id": 7,
        "restarts": 0,
        "dir": "/ckpt",
        "layout": "auto",
        "uid": 4242,
    }
    assert desk.say(register, SAVED) == ""
    first, second = (item.body for item in desk.items)
    assert (first["statement"], first["path"], first["uid"]) == ("checkpoint.register", "/ckpt", os.getuid())
    assert first["detail"] == {"layout": "auto"}
    assert (second["step"], second["restarts"], second["detail"]) == (5, 1, {"bytes": 9, "run": "7r1"})


def test_the_signal_that_a_job_registers_is_kept_on_its_node(desk: Desk) -> None:
    """Of ranks that register nothing else it is for the agent alone: nothing is reported."""
    said = {"v": 1, "kind": "checkpoint.signal", "job_id": 7, "restarts": 0, "save_signal": "USR1"}
    assert desk.say(said) == ""
    assert "not a job of this user" in desk.say({**said, "job_id": 8, "save_signal": "TERM"})
    assert [desk.signals.of(job, os.getuid()) for job in (7, 8)] == [signal.SIGUSR1, None]
    assert desk.items == []
    register = {**said, "kind": "checkpoint.register", "dir": "/ckpt", "save_signal": "USR2"}
    assert desk.say(register) == ""
    assert desk.signals.of(7, os.getuid()) is signal.SIGUSR2
    assert [item.body["statement"] for item in desk.items] == ["checkpoint.register"]
    assert "a later run" in desk.say({**register, "restarts": 1}, said)
    assert desk.signals.of(7, os.getuid()) is signal.SIGUSR2


def test_another_users_job_or_one_that_is_not_here_is_refused(desk: Desk) -> None:
    with subprocess.Popen(["sleep", "30"], user=65534 if os.getuid() == 0 else None) as other:
        if os.getuid() == 0:
            desk.slurm.jobs = {7: frozenset({other.pid})}
            assert "not a job of this user" in desk.say(SAVED)
        assert "not a job of this user" in desk.say({**SAVED, "job_id": 8})
        other.kill()
    assert desk.items == []
    assert desk.socket.refused["not a job of this user on this node"] >= 1


def test_a_cgroup_of_a_job_decides_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_socket, "job_of_cgroup", lambda _pid: CgroupJob(7, os.getuid()))
    desk = Desk(tmp_path, None)
    assert desk.say(SAVED) == ""
    assert "not this process's job" in desk.say({**SAVED, "job_id": 8})
    assert desk.slurm.asked == 0
    desk.socket.stop()


def test_another_user_in_a_jobs_cgroup_does_not_speak_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process as ``sudo`` in a task makes it. v1 has the job's user in the path; for v2 slurmd is asked."""
    monkeypatch.setattr(job_socket, "job_of_cgroup", lambda _pid: CgroupJob(7, os.getuid() + 1))
    desk = Desk(tmp_path, {7: frozenset({os.getpid()})})
    assert "not this user's job" in desk.say(SAVED)
    assert desk.slurm.asked == 0
    monkeypatch.setattr(job_socket, "job_of_cgroup", lambda _pid: CgroupJob(7, None))
    monkeypatch.setattr(job_socket, "started_by_slurm", lambda pid: pid == os.getpid())
    monkeypatch.setattr(job_socket, "owner_of", lambda _pid: os.getuid() + 1)
    assert "not this user's job" in desk.say(SAVED)
    desk.slurm.jobs = None
    desk.socket.stop()
    assert (desk.items, desk.socket.refused["not this user's job"]) == ([], 2)
    unasked = Desk(tmp_path, None)
    assert unasked.say(SAVED) == "", "slurmd does not say: Slurm's own cgroup is enough"
    unasked.socket.stop()


def test_a_task_of_a_component_speaks_for_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows the leader's id as its job; Slurm lists it under the component's."""
    desk = Desk(tmp_path / "slurmd", {8: frozenset({os.getpid()})})
    assert desk.say({**SAVED, "components": [7, 8]}) == ""
    assert "not a job of this user" in desk.say({**SAVED, "components": "7,8"})
    assert "not a job of this user" in desk.say({**SAVED, "components": [True, -8, "8"]})
    desk.socket.stop()
    monkeypatch.setattr(job_socket, "job_of_cgroup", lambda _pid: CgroupJob(8, os.getuid()))
    bound = Desk(tmp_path / "cgroup", None)
    assert bound.say({**SAVED, "components": [7, 8]}) == ""
    assert "not this process's job" in bound.say({**SAVED, "components": [7, 9]})
    assert [item.body["job_id"] for item in (*desk.items, *bound.items)] == [8, 8]
    bound.socket.stop()


def test_without_slurmds_word_nothing_is_believed(tmp_path: Path) -> None:
    desk = Desk(tmp_path, None)
    assert "cannot be looked up" in desk.say(SAVED)
    assert desk.items == []
    desk.socket.stop()


def test_claims_of_many_jobs_ask_slurmd_at_most_twice_a_second(desk: Desk) -> None:
    desk.say(*({**SAVED, "job_id": 100 + n} for n in range(50)))
    assert desk.slurm.asked <= 2


@pytest.mark.slow
def test_progress_is_kept_once_a_second_and_the_last_word_comes_when_its_second_is_over(desk: Desk) -> None:
    lines = [{"kind": "progress", "job_id": 7, "restarts": 0, "step": n} for n in range(5)]
    with desk.connect() as job, desk.connect() as other:
        job.sendall(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        _until(lambda: len(desk.items) == 1)
        assert [(item.body["step"], item.key) for item in desk.items] == [(0, "progress/7/0")]
        last = {"kind": "progress", "job_id": 7, "restarts": 0, "step": 5, "phase": "checkpoint", "groups": 3}
        other.sendall(json.dumps(last).encode() + b"\n")  # another rank of the job; then all of them hang
        _until(lambda: len(desk.items) == 2)
        assert [item.body["step"] for item in desk.items] == [0, 5]
        assert desk.items[1].body["detail"] == {"phase": "checkpoint", "groups": 3}


def test_what_waits_is_told_when_the_agent_ends(tmp_path: Path) -> None:
    desk = Desk(tmp_path, {7: frozenset({os.getpid()})})
    lines = [{"kind": "progress", "job_id": 7, "restarts": 0, "step": n} for n in range(2)]
    with desk.connect() as job:
        job.sendall(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        _until(lambda: bool(desk.items))
        desk.socket.stop()
    assert [item.body["step"] for item in desk.items] == [0, 1]


def test_held_progress_is_told_once_by_the_time_that_it_was_said_and_not_for_a_run_that_is_over() -> None:
    ledger = Ledger()

    def hear(step: int, now_s: float, restarts: int = 0) -> None:
        said = parse(json.dumps({"kind": "progress", "job_id": 7, "restarts": restarts, "step": step}).encode())
        if ledger.early(said, 0, now_s):
            ledger.hold(said, 0, said.item(0, now_s))
        else:
            assert ledger.take(said, 0, now_s) is None

    hear(1, 10.0)
    assert ledger.next_s() is None
    hear(2, 10.2)
    hear(3, 10.4)
    assert (ledger.next_s(), ledger.due(10.9)) == (11.0, [])
    assert [(item.body["step"], item.monotonic_s) for item in ledger.due(11.0)] == [(3, 10.4)]
    assert (ledger.next_s(), ledger.due(12.0)) == (None, [])
    hear(4, 11.5)
    hear(5, 13.0)
    assert ledger.due(20.0) == [], "what was said before counts no more"
    hear(6, 13.1)
    hear(1, 13.2, restarts=1)
    assert ledger.due(20.0) == []


def _until(true: Callable[[], bool], within_s: float = 3.0) -> None:
    deadline_s = time.monotonic() + within_s
    while not true() and time.monotonic() < deadline_s:
        time.sleep(0.005)


def test_an_older_runs_word_is_dropped(desk: Desk) -> None:
    answer = desk.say({**SAVED, "restarts": 2}, {**SAVED, "restarts": 1}, {**SAVED, "restarts": 2, "step": 6})
    assert "a later run" in answer
    assert [item.body["step"] for item in desk.items] == [5, 6]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"\xff\xfe\n", "not JSON"),
        (b"[" * 5000 + b"\n", "not JSON"),
        (b"[1]\n", "not an object"),
        ({**SAVED, "kind": "shell"}, "unknown kind"),
        ({**SAVED, "kind": []}, "unknown kind"),
        ({**SAVED, "kind": {}}, "unknown kind"),
        ({**SAVED, "path": "/x\udc00"}, "not valid Unicode"),
        ({**SAVED, "phase": "\ud800"}, "not valid Unicode"),
        ({"kind": "ask.latest", "dir": "/x\ud800"}, "not valid Unicode"),
        ({**SAVED, "job_id": True}, "job_id"),
        ({**SAVED, "job_id": 10**30}, "job_id"),
        ({**SAVED, "restarts": -1}, "restarts"),
        ({**SAVED, "step": "5"}, "step"),
        ({**SAVED, "step": None}, "step is missing"),
        ({**SAVED, "path": "../x"}, "absolute"),
        ({**SAVED, "path": "/a\nb"}, "control characters"),
        ({"kind": "checkpoint.register", "job_id": 7}, "dir is missing"),
        (b"x" * 9000 + b"\n", "line too long"),
        (b"x" * 9000, "line too long"),
    ],
)
def test_a_malformed_line_is_answered_counted_and_harms_nobody(desk: Desk, line: object, why: str) -> None:
    assert why in desk.say(line)
    assert sum(desk.socket.refused.values()) == 1
    assert desk.say(SAVED) == ""
    assert len(desk.items) == 1


@pytest.mark.slow
def test_whoever_floods_is_slowed_down_and_whoever_opens_many_connections_is_turned_away(desk: Desk) -> None:
    assert "too many statements" in desk.say(*([SAVED] * 300))
    connections = [desk.connect() for _ in range(70)]
    deadline_s = time.monotonic() + 3
    while not desk.socket.refused["too many connections"] and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert desk.socket.refused["too many connections"] > 0
    for connection in connections:
        connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("line", [b"\n", b"x\n"])
def test_a_connection_that_says_too_much_is_left_unread(desk: Desk, line: bytes) -> None:
    """Empty lines cost as much as others. The writer has to wait; its reports are accepted at the allowed rate."""
    with desk.connect() as connection:
        connection.settimeout(0.5)
        written = 0
        with contextlib.suppress(TimeoutError):
            for _ in range(200):
                connection.sendall(line * 10_000)
                written += 10_000
        assert written < 1_000_000
        assert desk.socket.refused["too many statements"] <= 3


@pytest.mark.slow
def test_what_was_said_too_fast_is_taken_later(desk: Desk) -> None:
    with desk.connect() as connection:
        for step in range(230):
            connection.sendall(json.dumps({**SAVED, "step": step}).encode() + b"\n")
        deadline_s = time.monotonic() + 10
        while len(desk.items) < 229 and time.monotonic() < deadline_s:
            time.sleep(0.05)
    assert [item.body["step"] for item in desk.items][-1] == 229
    assert desk.socket.refused["too many statements"] == 1


def test_who_says_nothing_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_socket, "_FIRST_WORD_S", 0.05)
    desk = Desk(tmp_path, {})
    with desk.connect() as connection:
        assert connection.recv(1) == b""
    desk.socket.stop()


def test_every_user_comes_to_the_socket_whatever_the_umask(tmp_path: Path) -> None:
    """The agent's unit has a umask for its evidence; on a node that is no head node no other program makes the folder."""
    before = os.umask(0o027)
    try:
        desk = Desk(tmp_path / "run", {})
    finally:
        os.umask(before)
    desk.socket.stop()
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o755


def test_a_socket_that_a_dead_agent_left_is_replaced_and_open_to_all(tmp_path: Path) -> None:
    (tmp_path / "agent.sock").write_text("left over")
    desk = Desk(tmp_path, {7: frozenset({os.getpid()})})
    assert (tmp_path / "agent.sock").stat().st_mode & 0o777 == 0o666
    assert desk.say(SAVED) == ""
    desk.socket.stop()
    assert not (tmp_path / "agent.sock").exists()


def test_the_rate_refills_and_is_each_users_own() -> None:
    rate = LineRate(per_s=1, burst=2)
    assert [rate.allow(1, 0.0) for _ in range(3)] == [True, True, False]
    assert rate.allow(2, 0.0)
    assert rate.allow(1, 1.0)


def test_the_ledger_is_bounded() -> None:
    ledger = Ledger()
    for job in range(1, 3000):
        said = parse(json.dumps({**SAVED, "job_id": job}).encode())
        assert ledger.take(said, 0, 0.0) is None
    assert len(ledger._runs) == 1000


def test_another_users_word_makes_the_jobs_own_one_neither_late_nor_old() -> None:
    ledger = Ledger()

    def hear(uid: int, restarts: int, step: int, now_s: float) -> str | None:
        line = {"kind": "progress", "job_id": 7, "restarts": restarts, "step": step}
        said = parse(json.dumps(line).encode())
        if ledger.early(said, uid, now_s):
            ledger.hold(said, uid, said.item(uid, now_s))
            return "held"
        return ledger.take(said, uid, now_s)

    assert hear(1001, 9, 1, 10.0) is None
    assert hear(1000, 0, 1, 10.1) is None
    assert (hear(1000, 0, 2, 10.2), hear(1001, 9, 2, 10.3)) == ("held", "held")
    assert hear(1001, 8, 3, 10.4) == "a later run of the job has spoken already"
    assert [(i.body["uid"], i.body["step"]) for i in ledger.due(12.0)] == [(1000, 2), (1001, 2)]


def test_a_statement_needs_its_fields() -> None:
    with pytest.raises(Malformed):
        parse(b"{}")


HEAD = "PID      JOBID    STEPID   LOCALID GLOBALID\n"
BROKEN = "scontrol: error: Domain socket directory /var/spool/n9: No such file or directory\n"


@pytest.mark.parametrize(
    ("said", "nothing"),
    [
        ("No job steps exist on this node.\n", True),
        ("There are no steps for job 2 on node n1.\n", True),
        ("JobId=77 does not exist on node n1.\n", True),
        ("StepId=77.batch does not exist on this node.\n", True),
        (BROKEN + "JobId=77 does not exist on node n9.\n", False),
        (BROKEN + "No job steps exist on this node.\n", False),
        ("scontrol: error: the node does not exist on node n1\n", False),
        ("", False),
    ],
)
def test_what_scontrol_says_of_a_job_that_is_not_there(tmp_path: Path, said: str, nothing: bool) -> None:
    """In 22.05's wording, on a node with other jobs and on one without. Together with another error it may be its consequence."""
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f"#!/bin/sh\nprintf '%s' '{HEAD}'\nprintf '%s' '{said}' >&2\nexit 1\n")
    scontrol.chmod(0o755)
    node = SlurmNode("n1", None, str(scontrol), None)
    if nothing:
        assert node.job_pids(77) == {}
    else:
        with pytest.raises(Unavailable, match="scontrol listpids"):
            node.job_pids(77)


def test_listpids_text_is_read_by_columns() -> None:
    text = "PID      JOBID    STEPID   LOCALID GLOBALID\n101      7        batch    0       0\n-1  7 0 1 1\n102 7 0 0 0\n103 9 0 - -\n"
    assert parse_listpids(text) == {7: frozenset({101, 102}), 9: frozenset({103})}
