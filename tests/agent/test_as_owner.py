"""The reader of a user's process runs with that user's rights, not root's, and offers the user no way to take it over."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from holdfast.agent.node.as_owner import PathOwner, command, must_keep_ptrace, owner_in
from holdfast.agent.orders import stacks
from holdfast.agent.orders.orders import ReceivedOrder
from support.job_socket import KnownJobs

GAMES = pwd.getpwnam("games")
OWNER = PathOwner(GAMES.pw_uid, GAMES.pw_gid, (GAMES.pw_gid, 4242))
PYTHON = shutil.which("python3", path="/usr/bin:/bin")
SLEEPS = "import time\ndef forward():\n    print('up', flush=True); time.sleep(600)\nforward()\n"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
needs_python = pytest.mark.skipif(PYTHON is None, reason="needs a Python that every user may run")

STATUS = "Name:\tpython\nUid:\t{0}\t{1}\t{1}\t{1}\nGid:\t60\t60\t60\t60\nGroups:\t60 4242 \n"


@pytest.mark.parametrize(
    ("status", "owner"),
    [
        (STATUS.format(5, 5), PathOwner(5, 60, (60, 4242))),
        (STATUS.format(5, 0), None),
        (STATUS.format(5, 5).replace("60\t60\t60\t60", "60\t0\t0\t60"), None),
        (STATUS.format(5, 5).replace("60 4242 ", ""), PathOwner(5, 60, ())),
        (STATUS.format("x", 5), None),
        ("", None),
    ],
)
def test_whose_rights_a_process_is_read_with(status: str, owner: PathOwner | None) -> None:
    assert owner_in(status) == owner


def test_the_right_to_trace_is_kept_only_where_the_machine_asks_for_it(tmp_path: Path) -> None:
    scope = tmp_path / "ptrace_scope"
    assert not must_keep_ptrace(scope)
    for text, kept in (("0\n", False), ("1\n", True), ("2\n", True), ("?", True)):
        scope.write_text(text)
        assert must_keep_ptrace(scope) is kept


class Reader:
    """A program started as another user, and what the kernel reports about it."""

    def __init__(self, *argv: str, keep_ptrace: bool = False) -> None:
        self.process = subprocess.Popen(command(OWNER, argv, 5, keep_ptrace=keep_ptrace), stderr=subprocess.PIPE)
        until(lambda: self.runs(argv[0]))

    def runs(self, program: str) -> bool:
        return Path(f"/proc/{self.process.pid}/cmdline").read_bytes().split(b"\0")[0] == program.encode()

    @property
    def status(self) -> Mapping[str, str]:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def limit(self, name: str) -> str:
        lines = Path(f"/proc/{self.process.pid}/limits").read_text().splitlines()
        return next(line for line in lines if line.startswith(name)).removeprefix(name).split()[1]

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def until(true: Callable[[], bool], within_s: float = 20.0) -> None:
    deadline_s = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.01)


@pytest.fixture(params=[False, True], ids=["no capability", "CAP_SYS_PTRACE"])
def reader(request: pytest.FixtureRequest) -> Iterator[tuple[Reader, bool]]:
    made = Reader("/bin/sleep", "60", keep_ptrace=request.param)
    yield made, request.param
    made.end()


@needs_root
def test_nothing_of_roots_is_left(reader: tuple[Reader, bool]) -> None:
    made, keeps = reader
    status = made.status
    assert set(status["Uid"].split()) == {str(OWNER.uid)}
    assert set(status["Gid"].split()) == {str(OWNER.gid)}
    assert set(status["Groups"].split()) == {str(group) for group in OWNER.groups}
    assert {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapAmb")} == {1 << 19 if keeps else 0}
    assert status["NoNewPrivs"] == "1"
    assert (made.limit("Max processes"), made.limit("Max file size"), made.limit("Max core file size")) == ("0",) * 3
    assert (made.limit("Max address space"), made.limit("Max cpu time")) == (str(2 << 30), "6")
    assert Path(f"/proc/{made.process.pid}/oom_score_adj").read_text() == "500\n"
    assert os.readlink(f"/proc/{made.process.pid}/cwd") == "/"


_ATTACH = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
print(libc.ptrace(0x4206, int(sys.argv[1]), None, None))  # PTRACE_SEIZE
"""


def _may_trace(pid: int) -> bool:
    done = subprocess.run(
        [str(PYTHON), "-c", _ATTACH, str(pid)],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
        user=OWNER.uid,
        group=OWNER.gid,
        extra_groups=[],
    )
    return done.stdout.strip() == "0"


@needs_root
@needs_python
def test_its_user_cannot_take_it_over(reader: tuple[Reader, bool]) -> None:
    """Otherwise any job would have a process outside of its cgroup, in the agent's."""
    with subprocess.Popen(["/bin/sleep", "60"], cwd="/", user=OWNER.uid, group=OWNER.gid, extra_groups=[]) as own:
        traced = _may_trace(own.pid)
        own.kill()
    if not traced:
        pytest.skip("no user may trace anything here")
    assert not _may_trace(reader[0].process.pid)


@needs_root
def test_what_cannot_be_run_says_so(tmp_path: Path) -> None:
    (tmp_path / "program").write_text("nothing\0")
    for program in (tmp_path / "missing", tmp_path / "program"):
        argv = command(OWNER, [str(program)], 5, keep_ptrace=False)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
        assert (done.returncode, done.stdout) == (126, "")
        assert done.stderr.startswith(f"{program} cannot be run as uid {OWNER.uid}: ")


class Job:
    """A Python process of a user's, and what the order reports about it."""

    def __init__(self, *argv: str) -> None:
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, cwd="/", start_new_session=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"up\n"

    def collect(self) -> Mapping[str, object]:
        order = ReceivedOrder("o1", "collect_stacks", {"job_id": 7, "deadline_s": 20}, "", "", time.monotonic() + 60)
        done = stacks.collect_stacks(KnownJobs({7: frozenset({self.process.pid})}))(order)
        (found,) = (each for each in done.detail["ranks"] if each["pid"] == self.process.pid)
        assert isinstance(found, dict)
        return found

    def end(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


AS_GAMES = ("setpriv", "--reuid", str(GAMES.pw_uid), "--regid", str(GAMES.pw_gid), "--clear-groups")
ELSEWHERE = 'mount -t tmpfs none /mnt && cp -L "$1" /mnt/python3 && shift && exec "$@"'
"""The executable is in a file system that only this mount namespace shows, as an image's is."""


@needs_root
@needs_python
@pytest.mark.slow
@pytest.mark.parametrize(
    "argv",
    [
        pytest.param((*AS_GAMES, str(PYTHON)), id="a user's"),
        pytest.param((*AS_GAMES, "unshare", "--user", "--map-root-user", "--mount", str(PYTHON)), id="in a container"),
        pytest.param(
            ("unshare", "--mount", "sh", "-c", ELSEWHERE, "sh", str(PYTHON), *AS_GAMES, "env", "PYTHONHOME=/usr", "/mnt/python3"),
            id="an image's own Python",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("keep_ptrace", [False, True])
def test_stacks_of_a_users_process_are_read_without_roots_rights(
    argv: tuple[str, ...], keep_ptrace: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "must_keep_ptrace", lambda: keep_ptrace)
    owners: list[PathOwner] = []

    def see(owner: PathOwner, argv: list[str], cpu_s: int, *, keep_ptrace: bool) -> list[str]:
        owners.append(owner)
        return command(owner, argv, cpu_s, keep_ptrace=keep_ptrace)

    monkeypatch.setattr(stacks, "command", see)
    job = Job(*argv, "-c", SLEEPS)
    try:
        found = job.collect()
    finally:
        job.end()
    assert found.get("frames") == ["forward (<string>:3)", "<module> (<string>:4)"], found
    assert {owner.uid for owner in owners} == {GAMES.pw_uid}


@needs_root
@needs_python
@pytest.mark.slow
def test_what_hides_itself_is_not_read_with_more_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that makes itself untraceable has no stack; root's rights are not lent to it."""
    monkeypatch.setattr(stacks, "must_keep_ptrace", lambda: False)
    hides = "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n"
    job = Job(*AS_GAMES, str(PYTHON), "-c", hides + SLEEPS)
    try:
        found = job.collect()
    finally:
        job.end()
    assert "frames" not in found
    assert "ermission" in str(found["error"]), found


@pytest.mark.skipif(os.geteuid() == 0, reason="for agents that are not root")
def test_an_agent_that_is_no_root_reads_with_its_own_rights() -> None:
    job = Job(sys.executable, "-c", SLEEPS)
    try:
        assert job.collect()["frames"]
    finally:
        job.end()
