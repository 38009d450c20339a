"""Stacks of a job's processes: the real py-spy on real processes that sleep, loop, are stopped, or hang in the kernel."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from holdfast.agent.node.processes import start_ticks
from holdfast.agent.orders.orders import OrderResult, ReceivedOrder
from holdfast.agent.orders.stacks import PythonProcess, _Reader, collect_stacks, find_tool, frames_of, plain, ranks_of
from holdfast.model.errors import Rejected, Unavailable
from holdfast_checks.probes.child import Children
from support.job_socket import KnownJobs

SLEEPS = """
import time
def forward():
    print("up", flush=True); time.sleep(600)
def step():
    forward()
step()
"""
LOOPS = """
def spin():
    count = 0
    while True:
        count += 1
        if count % 200_000 == 0:
            print(count, flush=True)
spin()
"""
HANGS = """
import ctypes
libc = ctypes.CDLL(None)
stack = ctypes.create_string_buffer(65536)
top = ctypes.c_void_p((ctypes.addressof(stack) + 65536) & ~15)
def in_the_driver():
    CLONE_VM, CLONE_VFORK, SIGCHLD = 0x100, 0x4000, 17
    libc.clone(ctypes.cast(libc.pause, ctypes.c_void_p), top, CLONE_VM | CLONE_VFORK | SIGCHLD, None)
print("up", flush=True)
in_the_driver()
"""
"""A parent in vfork sleeps uninterruptibly (state D) for as long as its child does not end: no ptrace can pause it."""
STARTS_A_RANK = f"""
import os, subprocess, sys
env = {{**os.environ, "RANK": "5", "LOCAL_RANK": "1"}}
worker = "import subprocess, sys; " + "subprocess.run([sys.executable, '-c', sys.argv[1]])"
subprocess.run([sys.executable, "-c", worker, {SLEEPS!r}], env=env)
"""
"""A launcher, its rank, and a worker of the rank's."""


class Bench:
    """Processes of job 7, in separate sessions, and the order."""

    def __init__(self) -> None:
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, code: str, **env: str) -> subprocess.Popen[bytes]:
        """Returns once it has printed its first line."""
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, **env}, start_new_session=True
        )
        self.running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline()
        return process

    def collect(self, tool: Callable[[], str | None] | None = None, **args: object) -> OrderResult:
        slurm = KnownJobs({7: frozenset(process.pid for process in self.running)})
        order = ReceivedOrder("o1", "collect_stacks", {"job_id": 7, **args}, "", "", time.monotonic() + 60)
        return collect_stacks(slurm, tool)(order)

    def close(self) -> None:
        for process in self.running:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


def only(done: OrderResult) -> Mapping[str, Any]:
    (rank,) = done.detail["ranks"]
    assert isinstance(rank, dict)
    return rank


def until(true: Callable[[], bool], within_s: float = 20.0) -> None:
    deadline_s = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.01)


@pytest.mark.slow
def test_a_sleeping_process_says_where_it_sleeps_innermost_first(bench: Bench) -> None:
    process = bench.start(SLEEPS, RANK="3", SLURM_PROCID="1")
    done = bench.collect()
    assert (done.ok, done.summary) == (True, "read 1 of 1 Python processes of job 7")
    frames = ["forward (<string>:4)", "step (<string>:6)", "<module> (<string>:7)"]
    assert only(done) == {"pid": process.pid, "rank": 3, "frames": frames}


@pytest.mark.slow
def test_a_looping_process_is_read_and_goes_on(bench: Bench) -> None:
    process = bench.start(LOOPS, SLURM_PROCID="1")
    assert process.stdout is not None
    found = only(bench.collect())
    assert found["rank"] == 1
    assert found["frames"][0].startswith("spin (<string>:")
    before = int(process.stdout.readline())
    while int(process.stdout.readline()) < before + 2_000_000:
        assert process.poll() is None


@pytest.mark.slow
def test_a_stopped_process_is_read_and_stays_stopped(bench: Bench) -> None:
    process = bench.start(SLEEPS)
    process.send_signal(signal.SIGSTOP)
    until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    found = only(bench.collect())
    assert (found["rank"], found["frames"][0]) == (None, "forward (<string>:4)")
    assert psutil.Process(process.pid).status() == psutil.STATUS_STOPPED


@pytest.mark.slow
def test_a_process_that_hangs_in_the_kernel_is_read_as_it_is_and_at_once(bench: Bench) -> None:
    process = bench.start(HANGS, RANK="0")
    until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_DISK_SLEEP)
    began_s = time.monotonic()
    found, _its_child = bench.collect(deadline_s=20).detail["ranks"]
    assert found["frames"][0].startswith("in_the_driver (<string>:")
    assert time.monotonic() - began_s < 15, "must not wait until it can be paused"
    assert psutil.Process(process.pid).status() == psutil.STATUS_DISK_SLEEP


@pytest.mark.slow
def test_a_rank_is_told_from_its_launcher_and_its_workers(bench: Bench) -> None:
    launcher = bench.start(STARTS_A_RANK, SLURM_PROCID="2")
    done = bench.collect()
    (rank, *others) = done.detail["ranks"]
    (child,) = psutil.Process(launcher.pid).children()
    (grandchild,) = child.children()
    assert (rank["rank"], rank["pid"]) == (5, child.pid)
    assert {each["pid"] for each in others} == {launcher.pid, grandchild.pid}
    assert all(each["rank"] is None and each["frames"] for each in others)


@pytest.mark.slow
def test_a_reader_that_hangs_is_ended_and_the_process_read_without_a_pause(bench: Bench, tmp_path: Path) -> None:
    tool = tmp_path / "py-spy"
    tool.write_text(f'#!/bin/sh\ncase "$*" in *--nonblocking*) exec {find_tool()} "$@";; esac\nexec sleep 60\n')
    tool.chmod(0o755)
    bench.start(SLEEPS, RANK="0")
    began_s = time.monotonic()
    assert only(bench.collect(lambda: str(tool), deadline_s=0.5))["frames"]
    assert 0.5 <= time.monotonic() - began_s < 20


@pytest.mark.slow
def test_what_cannot_be_read_is_listed_with_its_reason(bench: Bench, tmp_path: Path) -> None:
    bench.start(SLEEPS, RANK="0")
    tool = tmp_path / "py-spy"
    tool.write_text("#!/bin/sh\necho 'Error: no permission\nto say more' >&2\nexit 1\n")
    tool.chmod(0o755)
    done = bench.collect(lambda: str(tool))
    assert (done.ok, done.summary) == (False, "read 0 of 1 Python processes of job 7")
    assert only(done)["error"] == "Error: no permission to say more (exit status 1)"


def test_without_the_tool_or_any_python_process_that_is_said(bench: Bench) -> None:
    done = bench.collect(lambda: None)
    assert not done.ok
    assert "py-spy is not installed on this node" in done.summary
    shell = subprocess.Popen(["/bin/sleep", "60"], stdout=subprocess.PIPE, start_new_session=True)
    bench.running.append(shell)
    assert bench.collect().summary == "read 0 of 0 Python processes of job 7"


def test_slurmds_word_is_needed_and_a_job() -> None:
    order = ReceivedOrder("o1", "collect_stacks", {"job_id": 7}, "", "", time.monotonic() + 60)
    with pytest.raises(Unavailable):
        collect_stacks(KnownJobs(None))(order)
    with pytest.raises(Rejected):
        collect_stacks(KnownJobs({}))(ReceivedOrder("o1", "collect_stacks", {}, "", "", 0.0))


def test_py_spy_is_found_beside_the_interpreter_else_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_tool() is None
    for folder in (tmp_path, tmp_path / "bin"):
        folder.mkdir(exist_ok=True)
        (folder / "py-spy").touch(0o755)
        assert find_tool() == str(folder / "py-spy")


def _seen(pid: int, above: tuple[int, ...] = (), **env: str) -> PythonProcess:
    place = tuple(env.get(name, "") for name in ("rank", "local", "task", "group"))
    return PythonProcess(pid, 0, above, place)


@pytest.mark.parametrize(
    ("seen", "ranks"),
    [
        pytest.param((_seen(1, task="4"),), {1: 4}, id="srun python"),
        pytest.param((_seen(1, task="4"), _seen(2, (1,), task="4")), {1: 4}, id="a data loader's worker"),
        pytest.param((_seen(1, task="1"), _seen(2, (1,), task="1", group="1")), {2: 1}, id="holdfast run"),
        pytest.param(
            (
                _seen(1, task="1"),
                _seen(2, (1,), task="1", group="1"),
                _seen(3, (2, 1), task="1", group="1", rank="2", local="0"),
                _seen(4, (2, 1), task="1", group="1", rank="3", local="1"),
                _seen(5, (9, 3, 2, 1), task="1", group="1", rank="2", local="0"),
            ),
            {3: 2, 4: 3},
            id="holdfast run, torchrun, a worker below a shell",
        ),
        pytest.param((_seen(1),), {}, id="no rank in its environment"),
        pytest.param((_seen(1, rank="-1", task="7"),), {1: 7}, id="a RANK that is no number"),
        pytest.param((_seen(1, rank="²"),), {}, id="a digit that is none"),
        pytest.param((), {}, id="nothing"),
    ],
)
def test_which_processes_are_ranks(seen: tuple[PythonProcess, ...], ranks: dict[int, int]) -> None:
    assert ranks_of(seen) == ranks
    assert ranks_of(reversed(seen)) == ranks


def _thread(os_id: int | None, name: str | None, *frames: tuple[str, str | None]) -> dict[str, object]:
    told = [{"name": n, "short_filename": s, "filename": "/long/a.py", "line": 3} for n, s in frames]
    return {"os_thread_id": os_id, "thread_name": name, "frames": told}


@pytest.mark.parametrize(
    ("threads", "found"),
    [
        ([_thread(8, "MainThread", ("no", "b.py")), _thread(7, None, ("yes", "torch/x.py"))], ["yes (torch/x.py:3)"]),
        ([_thread(None, "w", ("no", "b.py")), _thread(None, "MainThread", ("yes", None))], ["yes (/long/a.py:3)"]),
        ([_thread(7, "MainThread", *[("f", "a.py")] * 99)], ["f (a.py:3)"] * 30),
        ([_thread(7, "MainThread", ("evil\n\x1b[31m" + "x" * 999, "a.py"))], ["evil??[31m" + "x" * 110]),
        ([_thread(7, "MainThread")], None),
        ([_thread(8, "w", ("no", "b.py"))], None),
        ([{}], None),
        ({"error": 1}, None),
        (7, None),
    ],
)
def test_the_main_threads_frames(threads: object, found: list[str] | None) -> None:
    said = frames_of(json.dumps(threads), 7)
    assert said.get("frames") == found
    assert ("error" in said) == (found is None)


def test_no_json_is_no_stack_and_texts_are_plain() -> None:
    assert "error" in frames_of("", 7)
    assert "error" in frames_of("[" * 100_000, 7)
    assert plain("a\nü") == "a??"


@pytest.mark.slow
def test_no_reader_is_started_for_a_user_whose_last_one_hangs_in_the_kernel() -> None:
    """py-spy opens files that the process has mapped: on a file system that does not answer it is in state D, one for each process."""
    spared: list[int] = []
    children = Children(kill=spared.append)
    children.run(f"stacks/{os.geteuid()}/1", ["sleep", "60"], 0.1)
    try:
        reader = _Reader("/bin/true", children, 1.0, time.monotonic() + 10.0)
        me = PythonProcess(os.getpid(), start_ticks(os.getpid()) or 0, (), ("",) * 4)
        assert reader.read(me) == {
            "error": f"not read: an earlier py-spy of uid {os.geteuid()} (pid {spared[0]}) hangs in the kernel"
        }
        assert children.left_behind() == (spared[0],)
    finally:
        os.kill(spared[0], signal.SIGKILL)
        while children.left_behind():
            time.sleep(0.02)
