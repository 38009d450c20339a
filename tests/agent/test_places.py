"""Connection slots of the job socket: no user takes those of the others, whatever ids and processes they have."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.agent.jobs import job_socket
from holdfast.agent.jobs.job_socket import JobSocket
from holdfast.agent.node.job_cgroup import CgroupJob
from holdfast.agent.node.namespaces import PeerProcess
from holdfast.agent.node.subordinate import SubordinateIds
from holdfast.agent.sending.outbox import OutboxItem
from support.job_socket import Job, KnownJobs

ASK = {"v": 1, "kind": "ask.standing"}
STATEMENT = {"v": 1, "kind": "checkpoint.register", "job_id": 7, "restarts": 0, "dir": "/c"}
FULL = {"error": "too many connections", "retry": True}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to speak as other users")
_PASS_ON = """
import os, socket, sys
uid, path, said, channel = int(sys.argv[1]), sys.argv[2], sys.argv[3], socket.socket(fileno=int(sys.argv[4]))
if uid != os.getuid():
    os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
connection = socket.socket(socket.AF_UNIX)
connection.connect(path)
connection.sendall(said.encode() + b"\\n")
socket.send_fds(channel, [b"x"], [connection.fileno()])
"""


class Desk:
    """A job socket whose accepting can wait until those who connected are gone."""

    def __init__(self, folder: Path, jobs: dict[int, frozenset[int]] | None = None) -> None:
        self.items: list[OutboxItem] = []
        self.slurm = KnownJobs(jobs or {})
        self.socket = JobSocket(folder, self.slurm, self.items.append)

    def passed_on(self, said: object, uid: int | None = None) -> socket.socket:
        """A connection whose process has ended and was waited for."""
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with mine, theirs:
            argv = [sys.executable, "-c", _PASS_ON, str(os.getuid() if uid is None else uid), str(self.socket.path)]
            subprocess.run(
                [*argv, json.dumps(said), str(theirs.fileno())], pass_fds=[theirs.fileno()], check=True, timeout=30
            )
            connection = socket.socket(fileno=socket.recv_fds(mine, 10, 1)[1][0])
        connection.settimeout(10)
        return connection


@pytest.fixture
def folder() -> Iterator[Path]:
    """Other users come to it."""
    with tempfile.TemporaryDirectory(prefix="hf-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def desk(folder: Path) -> Iterator[Desk]:
    desk = Desk(folder, {7: frozenset({os.getpid()})})
    yield desk
    if desk.socket._thread.ident is not None:
        desk.socket.stop()


def _until(true: Callable[[], bool], within_s: float = 10.0) -> bool:
    deadline_s = time.monotonic() + within_s
    while not true() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return true()


def test_processes_that_were_gone_share_one_small_quota(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_socket, "_OF_THE_GONE", 2)
    uids = [3001, 3002, 3003, 3004] if os.geteuid() == 0 else [os.getuid()] * 4
    with ExitStack() as stack:
        held = [stack.enter_context(desk.passed_on(ASK, uid)) for uid in uids]
        desk.socket.start()
        answers = [json.loads(each.recv(4096)) for each in held]
        assert [answer == FULL for answer in answers] == [False, False, True, True]
        with Job(desk.socket.path) as other:
            assert other.ask(STATEMENT | ASK)["kind"] == "standing", "a process that is there has a place"


@pytest.mark.slow
def test_a_connection_of_a_process_that_was_gone_is_dropped_though_it_has_asked(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_socket, "_FIRST_WORD_S", 0.3)
    with desk.passed_on(ASK) as held:
        desk.socket.start()
        assert held.recv(4096)
        assert held.recv(4096) == b""


def test_a_statement_of_a_process_that_was_gone_counts_for_the_kernels_uid(desk: Desk) -> None:
    with desk.passed_on(STATEMENT) as _held:
        desk.socket.start()
        assert _until(lambda: len(desk.items) == 1)
    assert desk.items[0].body["uid"] == os.getuid()


@needs_root
def test_the_last_places_are_for_root_and_users_with_a_job_here(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr(job_socket, "_IN_ALL", 6)
    monkeypatch.setattr(job_socket, "_KEPT", 4)
    monkeypatch.setattr(job_socket, "_ROOTS", 1)
    here = Speaker(folder, 3003)
    desk.slurm.jobs = {8: frozenset({here.pid})}
    desk.socket.start()
    strangers = [Speaker(folder, uid) for uid in (3001, 3002, 3004)]
    speakers = [*strangers, here]
    try:
        assert [each.ask() == FULL for each in speakers] == [False, False, True, False]
        with Job(desk.socket.path) as root:
            assert root.ask(ASK)["kind"] == "standing"
    finally:
        for each in speakers:
            each.end()


@needs_root
def test_subordinate_ids_have_one_share_and_speak_for_no_job(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """Files that are set-uid to them, executed outside of the namespace."""
    monkeypatch.setattr(job_socket, "_PER_USER", 2)
    (folder / "subuid").write_text("alice:100000:65536\nbob:165536:65536\n")
    desk.socket._subordinate = SubordinateIds(folder / "subuid")
    desk.socket.start()
    with ExitStack() as stack:
        speakers = [stack.enter_context(Speaker(folder, uid)) for uid in (100005, 100006, 165535, 165536, 3001)]
        desk.slurm.jobs = {7: frozenset({speakers[3].pid})}
        assert [each.ask() == FULL for each in speakers] == [False, False, True, False, False]
        speaker = stack.enter_context(Speaker(folder, 165537, STATEMENT))
        desk.slurm.jobs = {7: frozenset({speaker.pid})}
        assert "not a job of this user" in str(speaker.ask())
    assert desk.items == []


@needs_root
def test_the_processes_of_a_job_have_one_share_whatever_users_they_are(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """Ids of a user that are in no file: a plug-in of NSS assigned them."""
    monkeypatch.setattr(job_socket, "_PER_USER", 2)
    monkeypatch.setattr(job_socket, "job_of_cgroup", lambda _pid: CgroupJob(7, None))
    desk.socket.start()
    with ExitStack() as stack:
        speakers = [stack.enter_context(Speaker(folder, uid)) for uid in (3001, 3002, 3003)]
        assert [each.ask() == FULL for each in speakers] == [False, False, True]
        root = stack.enter_context(Job(desk.socket.path))
        assert root.ask(ASK)["kind"] == "standing"


@needs_root
def test_a_kept_place_is_for_the_jobs_own_user_and_the_very_last_are_for_root(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr(job_socket, "_IN_ALL", 4)
    monkeypatch.setattr(job_socket, "_KEPT", 3)
    monkeypatch.setattr(job_socket, "_ROOTS", 1)
    monkeypatch.setattr(job_socket, "job_of_cgroup", lambda _pid: CgroupJob(7, 3003))
    desk.socket.start()
    with ExitStack() as stack:
        speakers = [stack.enter_context(Speaker(folder, uid)) for uid in (3001, 3002, 3003, 3003, 3003)]
        assert [each.ask() == FULL for each in speakers] == [False, True, False, False, True]
        root = stack.enter_context(Job(desk.socket.path))
        assert root.ask(ASK)["kind"] == "standing"
        with Job(desk.socket.path) as another:
            assert another.hear() == FULL


def test_who_asked_and_falls_silent_is_dropped_and_a_job_that_has_stated_stays(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_socket, "_ASKED_S", 0.2)
    monkeypatch.setattr(job_socket, "_FIRST_WORD_S", 0.1)
    desk.socket.start()
    with Job(desk.socket.path) as job, Job(desk.socket.path) as refused, Job(desk.socket.path) as asker:
        job.say(STATEMENT)
        assert "not a job of this user" in refused.ask({**STATEMENT, "job_id": 8})["error"]
        assert asker.ask(ASK)
        assert asker.hear() is None
        assert refused.hear() is None
        assert job.ask(ASK)["kind"] == "standing"


def test_a_user_whose_job_slurmd_may_not_show_yet_may_try_again(desk: Desk) -> None:
    desk.socket.start()
    with Job(desk.socket.path) as job:
        assert job.ask({**STATEMENT, "job_id": 8})["retry"] is True


def test_a_process_is_there_until_it_was_waited_for(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    with listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        command = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); sys.stdin.read()"
        process = subprocess.Popen([sys.executable, "-c", command, str(tmp_path / "s")], stdin=subprocess.PIPE)
        connection = listener.accept()[0]
        with connection, PeerProcess(connection) as seen:
            assert (seen.pid, seen.uid, seen.exists()) == (process.pid, os.getuid(), True)
            process.communicate()
            assert not seen.exists()
            with PeerProcess(connection) as late:
                assert not late.exists()


class Speaker:
    """A living process of another user that asks one question and keeps its connection."""

    def __init__(self, folder: Path, uid: int, said: object = ASK) -> None:
        code = """
import os, socket, sys
uid = int(sys.argv[3]); os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
print("ready", flush=True)
sys.stdin.readline()
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
try:
    s.sendall(sys.argv[2].encode() + b"\\n")
except BrokenPipeError:  # refused before it spoke
    pass
print(s.recv(4096).decode(), end="", flush=True)
sys.stdin.readline()
"""
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, str(folder / "agent.sock"), json.dumps(said), str(uid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def __enter__(self) -> Speaker:
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()

    def ask(self) -> object:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate("\n\n", timeout=30)
