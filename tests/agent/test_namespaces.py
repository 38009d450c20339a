"""Identity of a speaker inside a container: the user is the owner of the namespace."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.agent.jobs.job_socket import JobSocket
from holdfast.agent.node.namespaces import user_behind
from holdfast.agent.sending.outbox import OutboxItem
from support.job_socket import KnownJobs

GAMES = pwd.getpwnam("games").pw_uid
_SPEAKER = """
import ctypes, json, os, socket, sys
uid, path, line = int(sys.argv[1]), sys.argv[2], sys.argv[3]
libc = ctypes.CDLL(None, use_errno=True)
if os.geteuid() == 0:
    os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
if libc.unshare(0x10000000):
    sys.exit(f"unshare: {os.strerror(ctypes.get_errno())}")
print("made", flush=True)
sys.stdin.readline()  # the ids are mapped, as newuidmap does
if len(sys.argv) > 4:
    os.setresuid(1000, 1000, 1000)
    if libc.unshare(0x10000000):  # a container in the container
        sys.exit("the second one")
connection = socket.socket(socket.AF_UNIX)
connection.connect(path)
connection.sendall(line.encode() + b"\\n")
connection.shutdown(socket.SHUT_WR)
connection.settimeout(20)
print(connection.recv(4096).decode(), flush=True)
sys.stdin.readline()
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a user more ids")


class Container:
    """A process of a user in a user namespace that this user made, which sends one line to the agent."""

    def __init__(self, socket: Path, maps: str, *more: str, uid: int = GAMES) -> None:
        line = json.dumps({"v": 1, "kind": "progress", "job_id": 7, "restarts": 0, "run": "j7-r0.0.0", "step": 3})
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SPEAKER, str(uid), str(socket), line, *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if self._line() != "made":
            pytest.skip(f"no user namespaces are allowed here: {self.process.communicate()[1]}")
        for ids in ("uid_map", "gid_map"):
            Path(f"/proc/{self.process.pid}/{ids}").write_text(maps)

    def speak(self) -> str:
        """The answer; empty: it was accepted. The process waits for ``end``."""
        self._go_on()
        return self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def _go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self._go_on()
        self.process.communicate(timeout=30)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hf-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@needs_root
@pytest.mark.slow
@pytest.mark.parametrize(
    ("maps", "more"),
    [
        pytest.param(f"{GAMES} {GAMES} 1", (), id="as enroot and Apptainer"),
        pytest.param(f"0 {GAMES} 1", (), id="root inside"),
        pytest.param(f"0 {GAMES} 1\n1 100000 2000", ("1000",), id="a subordinate id, one container in another"),
    ],
)
def test_a_container_speaks_for_the_user_who_made_it(folder: Path, maps: str, more: tuple[str, ...]) -> None:
    items: list[OutboxItem] = []
    jobs: dict[int, frozenset[int]] = {}
    desk = JobSocket(folder, KnownJobs(jobs), items.append)
    desk.start()
    try:
        container = Container(desk.path, maps, *more)
        jobs[7] = frozenset({container.process.pid})  # nothing of the job is outside
        answer = container.speak()
        host_uid = os.stat(f"/proc/{container.process.pid}").st_uid
        container.end()
    finally:
        desk.stop()
    assert host_uid == (100999 if more else GAMES)
    assert (answer, [item.body["uid"] for item in items]) == ("", [GAMES])


@needs_root
@pytest.mark.slow
def test_another_users_container_is_not_believed(folder: Path) -> None:
    items: list[OutboxItem] = []
    owner = Container(folder / "nothing", f"0 {GAMES} 1")
    desk = JobSocket(folder, KnownJobs({7: frozenset({owner.process.pid})}), items.append)
    desk.start()
    try:
        other = Container(desk.path, f"{GAMES} 2 1\n0 100000 1", uid=2)
        assert "not a job of this user on this node" in other.speak()
        other.end()
    finally:
        owner.process.kill()
        owner.process.communicate()
        desk.stop()
    assert items == []


def test_outside_of_containers_a_user_is_the_uid() -> None:
    assert user_behind(os.getpid(), 1234) == 1234
    assert user_behind(2**22 - 1, 1234) == 1234, "it is gone"


@needs_root
@pytest.mark.slow
def test_a_namespace_that_root_made_says_nothing_of_the_user(folder: Path) -> None:
    command = "import ctypes,time; ctypes.CDLL(None).unshare(0x10000000); print(1, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", command], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert user_behind(process.pid, 1234) == 1234
        process.kill()
