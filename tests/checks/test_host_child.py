"""Commands with a deadline: bounded output, the process group killed, and one that survives SIGKILL never started twice."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast_checks.probes import process_files
from holdfast_checks.probes.child import Children, Finished, Hung

pytestmark = pytest.mark.slow


@pytest.fixture
def children() -> Children:
    return Children()


def gone(pid: int) -> bool:
    """Ended, reaped or not."""
    stat = process_files.stat(pid)
    return stat is None or stat.ended


def eventually(condition: Callable[[], bool]) -> bool:
    until_s = time.monotonic() + 5
    while not condition():
        if time.monotonic() > until_s:
            return False
        time.sleep(0.01)
    return True


def test_output_status_and_input(children: Children) -> None:
    done = children.run("a", ["sh", "-c", "cat; echo no >&2; exit 3"], 5, stdin=b"hello")
    assert isinstance(done, Finished)
    assert (done.status, done.out, done.err, done.truncated) == (3, b"hello", b"no\n", False)
    assert done.complaint == "no (exit status 3)"


def test_a_command_that_ends_by_a_signal_and_one_that_is_not_there(children: Children) -> None:
    done = children.run("a", ["sh", "-c", "kill -9 $$"], 5)
    assert isinstance(done, Finished)
    assert done.status == -signal.SIGKILL
    with pytest.raises(FileNotFoundError):
        children.run("a", ["/no/such/command"], 5)
    assert isinstance(children.run("a", ["true"], 5), Finished)


def test_output_is_bounded_and_does_not_block_the_command(children: Children) -> None:
    done = children.run("a", ["sh", "-c", "head -c 3000000 /dev/zero"], 10, max_bytes=1000)
    assert isinstance(done, Finished)
    assert (done.status, len(done.out), done.truncated) == (0, 1000, True)


def test_at_the_deadline_the_whole_group_is_killed(children: Children, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    began_s = time.monotonic()
    done = children.run("a", ["sh", "-c", f"sleep 60 & echo $! $$ > {pids}; wait"], 0.3)
    assert isinstance(done, Hung)
    assert not done.left_behind
    assert 0.3 <= time.monotonic() - began_s < 20
    assert all(eventually(lambda pid=pid: gone(int(pid))) for pid in pids.read_text().split())  # type: ignore[misc]
    assert children.left_behind() == ()


def test_a_daemon_that_holds_the_pipe_does_not_make_its_parent_hang(children: Children) -> None:
    began_s = time.monotonic()
    done = children.run("a", ["sh", "-c", "sleep 60 & echo $!"], 30)
    assert isinstance(done, Finished)
    assert time.monotonic() - began_s < 20, "its deadline is 30 s"
    assert eventually(lambda: gone(int(done.text)))


@pytest.fixture
def immortal() -> Iterator[tuple[Children, list[int]]]:
    """Children whose kill does nothing, as for a process in state D; the pids that should have been killed."""
    spared: list[int] = []
    yield Children(kill=spared.append), spared
    for pid in spared:
        if not gone(pid):
            os.kill(pid, signal.SIGKILL)


def test_a_child_that_survives_sigkill_is_left_and_not_started_again(
    immortal: tuple[Children, list[int]], tmp_path: Path
) -> None:
    children, spared = immortal
    started = tmp_path / "started"
    argv = ["sh", "-c", f"echo >> {started}; exec sleep 60"]
    first = children.run("mount /a", argv, 0.2)
    assert isinstance(first, Hung)
    assert first.left_behind
    again = children.run("mount /a", argv, 5)
    assert isinstance(again, Hung)
    assert (again.pid, again.left_behind) == (first.pid, True)
    assert again.seconds > first.seconds
    assert started.read_text() == "\n"
    assert isinstance(children.run("mount /b", ["true"], 5), Finished)
    assert children.left_behind() == (first.pid,)
    assert (left := children.hung("mount /")) is not None
    assert left.pid == first.pid
    assert children.hung("mount /b") is None

    os.kill(spared[0], signal.SIGKILL)
    assert eventually(lambda: children.left_behind() == ())
    assert isinstance(children.run("mount /a", ["true"], 5), Finished)


def test_one_key_runs_once_at_a_time_and_other_keys_beside_it(children: Children, tmp_path: Path) -> None:
    seen: list[Finished | Hung] = []
    begun = tmp_path / "begun"
    argv = ["sh", "-c", f"touch {begun}; exec sleep 3"]
    thread = threading.Thread(target=lambda: seen.append(children.run("a", argv, 20)))
    began_s = time.monotonic()
    thread.start()
    assert eventually(begun.exists)
    assert isinstance(children.run("b", ["true"], 5), Finished)
    assert children.run("a", ["true"], 0.1) == Hung(0.1, left_behind=False, pid=0)
    assert time.monotonic() - began_s < 3
    assert isinstance(children.run("a", ["true"], 20), Finished)
    assert time.monotonic() - began_s >= 3
    thread.join()
    assert isinstance(seen[0], Finished)


def test_a_gentle_command_is_nice_and_idle(children: Children) -> None:
    show = "import os,sys,time; time.sleep(0.2); print(os.nice(0))"
    done = children.run("a", [sys.executable, "-I", "-S", "-c", show], 10, gentle=True)
    assert isinstance(done, Finished)
    assert done.text.strip() == "19"


def test_without_pidfd_a_command_still_ends(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    def old_kernel(_pid: int) -> int:
        raise OSError("no pidfd_open")

    monkeypatch.setattr(os, "pidfd_open", old_kernel)
    done = children.run("a", ["sh", "-c", "exec >&- 2>&-; sleep 0.2; exit 7"], 5)
    assert isinstance(done, Finished)
    assert done.status == 7


def test_too_much_input_is_refused(children: Children) -> None:
    with pytest.raises(ValueError, match="4096"):
        children.run("a", ["cat"], 5, stdin=b"x" * 5000)
