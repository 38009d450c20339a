"""Up and down of practice clusters, and what a crash must not leave behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from holdfast.model.errors import ConfigError, Rejected
from holdfast.practice import Practice
from holdfast.practice.cluster.processes import MARK, start_ticks
from support.practice import eventually

MakePractice = Callable[..., Practice]


def processes_of(practice: Practice) -> list[str]:
    """Command lines of live processes that name the cluster's folder in their arguments or environment."""
    folder = os.fspath(practice.folder)
    found = []
    for process in psutil.process_iter():
        try:
            mine = folder in " ".join(process.cmdline()) or process.environ().get(MARK) == folder
        except psutil.Error:
            continue
        if mine and process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
            found.append(" ".join(process.cmdline()))
    return found


def pids_of(practice: Practice) -> list[int]:
    """Everything below the recorded processes, and they themselves."""
    return [pid for name in practice.processes.names() for pid in practice.processes.tree(name)]


def name_of(pid: int) -> str:
    """A process's name; empty once it is gone."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).name()
    return ""


@pytest.mark.slurm
def test_up_runs_jobs_and_down_leaves_nothing(make_practice: MakePractice) -> None:
    practice = make_practice(nodes=2, gpus=4)
    practice.up()
    practice.up()
    job_id = practice.sbatch("(setsid sleep 300 &) ; srun sleep 300", "-N2", "--gres=gpu:4")
    eventually(lambda: "RUNNING" in practice.command("squeue", "-h", "-o", "%T", "-j", str(job_id)))
    assert [node.slurm_state for node in practice.status().nodes] == ["mixed", "mixed"]
    eventually(
        lambda: [name_of(pid) for pid in pids_of(practice)].count("sleep") == 3
    )  # two tasks and the detached one
    pids = pids_of(practice)
    practice.down()
    assert processes_of(practice) == []
    assert [pid for pid in pids if start_ticks(pid) is not None] == []
    practice.down()
    practice.up()
    assert practice.command("squeue", "-h", "-a", "-o", "%A").split() == [str(job_id)]


@pytest.mark.slurm
def test_two_clusters_at_a_time(make_practice: MakePractice) -> None:
    first, second = make_practice(nodes=1, name="first"), make_practice(nodes=1, name="second")
    first.up()
    second.up()
    assert first.spec.address("n1") != second.spec.address("n1")
    first.sbatch("sleep 60")
    assert len(first.command("squeue", "-h").splitlines()) == 1
    assert second.command("squeue", "-h") == ""
    first.down()
    assert [node.slurm_state for node in second.status().nodes] == ["idle"]


@pytest.mark.slurm
def test_down_after_a_crash_of_whoever_started_it(make_practice: MakePractice) -> None:
    practice = make_practice(nodes=2)
    code = (
        "import sys, os, signal; from holdfast.practice import Practice; p = Practice.load(sys.argv[1]); p.up();"
        "p.start_daemon('extra', ['sleep', '600']); p.sbatch('sleep 600'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, practice.folder], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    for record in (practice.folder / "run").glob("*.json"):
        record.unlink()  # a crash before anything was recorded
    assert processes_of(practice)
    practice.down()
    assert processes_of(practice) == []


@pytest.mark.slow
def test_a_recorded_pid_of_another_process_is_left_alone(make_practice: MakePractice) -> None:
    practice = make_practice(nodes=1)
    record = practice.processes.start("extra", ["sleep", "600"])
    time.sleep(0.05)  # start times are given in clock ticks
    stranger = practice.processes.start("stranger", ["sleep", "600"])
    (practice.folder / "run" / "stranger.json").unlink()
    try:
        path = practice.folder / "run" / "extra.json"
        content = json.loads(path.read_text())
        path.write_text(json.dumps({**content, "pid": stranger.pid, "main_pid": stranger.main_pid}))
        assert not practice.processes.alive("extra")
        practice.processes.stop("extra")
        assert start_ticks(stranger.pid) is not None
    finally:
        practice.down()
    assert start_ticks(record.pid) is None
    assert start_ticks(stranger.pid) is None


def test_what_create_and_load_refuse(make_practice: MakePractice, short_folder: Path) -> None:
    practice = make_practice(nodes=1)
    with pytest.raises(ConfigError, match="already"):
        Practice.create(practice.folder)
    with pytest.raises(ConfigError, match="no practice cluster"):
        Practice.load(short_folder / "none")
    with pytest.raises(ConfigError, match="too long"):
        Practice.create(short_folder / ("x" * 80))
    with pytest.raises(ConfigError, match="no node n9"):
        practice.machine("n9")


@pytest.mark.slurm
def test_a_refused_command_says_why(practice: Practice) -> None:
    with pytest.raises(Rejected, match="invalid partition"):
        practice.sbatch("true", "-p", "nope")
