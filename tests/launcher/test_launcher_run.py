"""``holdfast run`` with real processes: what ranks are given, what their ends mean, and that nothing outlives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast_checkpoint import Checkpointer
from support.launching import AWARE, SHOW, Launch, alive, launched, python

pytestmark = pytest.mark.slow

SLEEPER = "import subprocess; p = subprocess.Popen(['sleep', '300'], start_new_session=True); print('sleeper', p.pid, flush=True);"
"""Leaves a process in a separate session, as torchrun does with its workers."""


def sleepers(launch: Launch) -> list[int]:
    return [int(line.split()[1]) for line in launch.said.splitlines() if line.startswith("sleeper ")]


def test_ranks_are_told_who_they_are(tmp_path: Path) -> None:
    quorum = {
        "HOLDFAST_QUORUM": "http://127.0.0.1:9",
        "HOLDFAST_QUORUM_TOKEN": "t",
        "HOLDFAST_GROUP": "3",
        "TORCHFT_QUORUM_RETRIES": "7",
    }
    with launched(tmp_path, "--nproc", "2", "--", *python(SHOW), **quorum) as launch:
        assert launch.end() == 0
    first, second = sorted(launch.shown, key=lambda env: env["RANK"])
    assert [(e["RANK"], e["LOCAL_RANK"], e["WORLD_SIZE"], e["LOCAL_WORLD_SIZE"]) for e in (first, second)] == [
        ("0", "0", "2", "2"),
        ("1", "1", "2", "2"),
    ]
    for name in ("MASTER_ADDR", "MASTER_PORT", "HOLDFAST_INCARNATION", "HOLDFAST_EVENT_FILE"):
        assert first[name] == second[name] != ""
    assert first["HOLDFAST_GROUP"] == "3"
    assert first["HOLDFAST_QUORUM"] == first["TORCHFT_LIGHTHOUSE"] == quorum["HOLDFAST_QUORUM"]
    assert (first["TORCHFT_QUORUM_TIMEOUT_SEC"], first["TORCHFT_QUORUM_RETRIES"]) == ("600", "7")
    assert first["HOLDFAST_ADDRESS"] == "127.0.0.1"
    assert list(tmp_path.glob("holdfast-run-*")) == []


def test_a_stock_lighthouse_is_not_taken_for_a_room_of_ours(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from a file\n")
    stock = {"TORCHFT_LIGHTHOUSE": "http://127.0.0.1:9", "HOLDFAST_QUORUM_TOKEN_FILE": str(tmp_path / "token")}
    with launched(tmp_path, *python(SHOW), **stock) as launch:
        assert launch.end() == 0
    (env,) = launch.shown
    assert "HOLDFAST_QUORUM" not in env
    assert (env["TORCHFT_LIGHTHOUSE"], env["HOLDFAST_QUORUM_TOKEN"]) == ("http://127.0.0.1:9", "from a file")


@pytest.mark.parametrize(
    ("shell", "status"),
    [("exit 0", 0), ("kill -9 $$", 137), ("kill -TERM $$", 143)],
)
def test_the_exit_status_is_the_commands(tmp_path: Path, shell: str, status: int) -> None:
    with launched(tmp_path, "--", "sh", "-c", shell) as launch:
        assert launch.end() == status


@pytest.mark.parametrize(
    ("command", "status", "word"), [("/nope/train", 127, "No such file"), ("/etc/passwd", 126, "ermission denied")]
)
def test_a_command_that_cannot_be_started_is_one_line(tmp_path: Path, command: str, status: int, word: str) -> None:
    with launched(tmp_path, command) as launch:
        assert launch.end() == status
    assert launch.said.count("\n") == len(launch.lines) == 1
    assert word in launch.said


def test_holdfast_run_needs_no_typer(tmp_path: Path) -> None:
    code = "import sys; sys.modules['typer'] = None; from holdfast.cli import main; main()"
    launch = Launch(tmp_path, "run", "--", "sh", "-c", "exit 4", via=(sys.executable, "-c", code))
    assert launch.end() == 4


def test_a_rank_that_dies_takes_its_group_with_it_into_the_last_session(tmp_path: Path) -> None:
    code = (
        SLEEPER + "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True)\n"
    )
    code += "while os.environ['RANK'] == '0' or not os.path.exists(os.environ['GO']): time.sleep(0.02)\nos._exit(3)"
    with launched(tmp_path, "--nproc", "2", "--", *python(code), GO=str(tmp_path / "go")) as launch:
        launch.until_said("ready", 2)
        pids = sleepers(launch)
        assert [alive(pid) for pid in pids] == [True, True]
        (tmp_path / "go").touch()
        assert launch.end() == 3
        assert [alive(pid) for pid in pids] == [False, False]
    assert launch.lines == ["rank 1 of this node ended with 3"]


def test_what_a_finished_command_leaves_behind_is_ended(tmp_path: Path) -> None:
    with launched(tmp_path, *python(SLEEPER)) as launch:
        assert launch.end() == 0
        (pid,) = sleepers(launch)
        assert not alive(pid)


def test_a_killed_launcher_leaves_nothing_behind(tmp_path: Path) -> None:
    code = SLEEPER + "import os, time; print('rank', os.getpid(), flush=True); time.sleep(300)"
    with launched(tmp_path, "--nproc", "2", *python(code)) as launch:
        launch.until_said("rank", 2)
        ranks = [int(line.split()[1]) for line in launch.said.splitlines() if line.startswith("rank ")]
        pids = [*ranks, *sleepers(launch)]
        assert all(map(alive, pids))
        launch.signal(signal.SIGKILL)
        assert launch.end() == -signal.SIGKILL
        launch.until(lambda: not any(map(alive, pids)))
        launch.until(lambda: list(tmp_path.glob("holdfast-run-*")) == [])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_group_that_is_asked_finishes_its_step_and_wants_to_come_back(tmp_path: Path, number: signal.Signals) -> None:
    with launched(tmp_path, "--nproc", "2", "--deadline", "90", *python(AWARE)) as launch:
        launch.until_said("step", 2)
        launch.signal(number)
        assert launch.end() == 85
    left = [line.split(maxsplit=2) for line in launch.said.splitlines() if line.startswith("left ")]
    assert [each[1] for each in left] == ["USR1", "USR1"]
    event = json.loads(left[0][2])
    assert (event["reason"], event["target"]) == (number.name, None)
    assert event["deadline"].endswith("+00:00")


def test_one_rank_that_leaves_takes_the_others_along(tmp_path: Path) -> None:
    early = "import os, sys, time\nwhile os.environ['RANK'] == '0':\n  os.path.exists(os.environ['GO']) and sys.exit(85)\n  time.sleep(0.1)"
    with launched(tmp_path, "--nproc", "2", *python(f"{early}\n{AWARE}"), GO=str(tmp_path / "go")) as launch:
        launch.until_said("step")
        (tmp_path / "go").touch()
        assert launch.end() == 85
    assert 'left USR1 {"reason":"a rank has left"' in launch.said


def test_what_cannot_leave_is_ended_at_once_and_comes_back(tmp_path: Path) -> None:
    with launched(tmp_path, "sh", "-c", "echo up; sleep 300") as launch:
        launch.until_said("up")
        began_s = time.monotonic()
        launch.signal(signal.SIGTERM)
        assert launch.end() == 85
        assert time.monotonic() - began_s < 10


def test_the_deadline_ends_who_does_not_leave(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGUSR1, lambda *_: None); print('up', flush=True)\nwhile True: time.sleep(1)"
    with launched(tmp_path, "--deadline", "1", *python(code)) as launch:
        launch.until_said("up")
        began_s = time.monotonic()
        launch.signal(signal.SIGUSR1)
        assert launch.end() == 85
        assert time.monotonic() - began_s >= 1


def test_a_second_sigterm_ends_the_wait_but_an_echo_of_the_first_does_not(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGUSR1, lambda *_: None); print('up', flush=True)\nwhile True: time.sleep(1)"
    with launched(tmp_path, *python(code)) as launch:
        launch.until_said("up")
        launch.signal(signal.SIGTERM)
        launch.until_said("asked to leave")
        launch.signal(signal.SIGTERM)
        time.sleep(1.2)
        assert launch.process.poll() is None
        launch.signal(signal.SIGTERM)
        assert launch.end() == 85


def test_a_shell_that_dies_of_slurms_signal_does_not_cut_the_training_short(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(AWARE)
    with launched(tmp_path, "sh", "-c", f"echo shell $$; {sys.executable} {tmp_path}/train.py 1; true") as launch:
        launch.until_said("step")
        shell = int(launch.said.split()[1])
        launch.signal(signal.SIGTERM)
        os.kill(shell, signal.SIGTERM)  # Slurm sends it to every process of a step
        assert launch.end() == 85
    assert "left USR1" in launch.said


def test_an_interrupt_ends_everything(tmp_path: Path) -> None:
    with launched(tmp_path, "--nproc", "2", "--restarts", "3", "sh", "-c", "echo up; sleep 300") as launch:
        launch.until_said("up", 2)
        launch.signal(signal.SIGINT)
        assert launch.end() == 130


def test_restarts_in_place_are_new_starts_of_the_group(tmp_path: Path) -> None:
    shell = 'echo "$HOLDFAST_INCARNATION ${HOLDFAST_ATTEMPT-none}"; test "${HOLDFAST_ATTEMPT-0}" -eq 2 || exit 9'
    slurm = {"SLURM_JOB_ID": "73", "SLURM_RESTART_COUNT": "1"}
    with launched(tmp_path, "--restarts", "5", "sh", "-c", shell, **slurm) as launch:
        assert launch.end() == 0
    assert [line for line in launch.said.splitlines() if line.startswith("73.")] == [
        "73.1 none",
        "73.1.1 1",
        "73.1.2 2",
    ]
    assert launch.lines.count("rank 0 of this node ended with 9") == 2


def test_restarts_in_place_are_counted(tmp_path: Path) -> None:
    with launched(tmp_path, "--restarts", "1", "sh", "-c", "exit 9") as launch:
        assert launch.end() == 9
    assert launch.lines == ["rank 0 of this node ended with 9", "restart 1 of 1", "rank 0 of this node ended with 9"]


@pytest.mark.parametrize("status", [85, 93])
def test_who_has_left_is_not_restarted_in_place(tmp_path: Path, status: int) -> None:
    with launched(tmp_path, "--restarts", "5", "sh", "-c", f"exit {status}") as launch:
        assert launch.end() == status
    assert not any("restart" in line for line in launch.lines)


def test_it_resumes_from_the_newest_complete_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    with launched(tmp_path, "--checkpoints", str(folder), *python(SHOW), HOLDFAST_RESUME_FROM="/old") as launch:
        assert launch.end() == 0
    assert "HOLDFAST_RESUME_FROM" not in launch.shown[0]
    checkpoints = Checkpointer(str(folder), rank=0, world_size=1)
    checkpoints.resume()
    with checkpoints.save(3) as step:
        (Path(step) / "model").write_text("x")
    with launched(tmp_path, "--checkpoints", str(folder), *python(SHOW)) as launch:
        assert launch.end() == 0
    assert launch.shown[0]["HOLDFAST_RESUME_FROM"].startswith(str(folder))


def test_ranks_keep_their_output_and_their_standard_input(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "holdfast.launcher", "sh", "-c", "read line; echo out $line; echo err >&2"]
    done = subprocess.run(argv, input="hello\n", capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "out hello\n", "err\n")
