"""The practice job as real processes: the same weights with and without an interruption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast_checkpoint import latest

pytestmark = pytest.mark.slow

RANKS = 3


class Job:
    """One job of three ranks, started as srun would."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, name: str, restarts: int = 0, **options: object) -> list[subprocess.Popen[str]]:
        settings = {"steps": 60, "step_s": 0.0, "checkpoint_every": 10, "timeout_s": 20, **options}
        env = {
            "PATH": os.environ["PATH"],
            "SLURM_JOB_ID": "77",
            "SLURM_NTASKS": str(RANKS),
            "HOLDFAST_AGENT_SOCKET": "/nonexistent",
            "HOLDFAST_TRAIN_DIR": str(self.folder / name),
            **({"SLURM_RESTART_COUNT": str(restarts)} if restarts else {}),
            **{f"HOLDFAST_TRAIN_{key.upper()}": str(value) for key, value in settings.items()},
        }
        started = [
            subprocess.Popen(
                [sys.executable, "-m", "holdfast.practice.jobs.train"],
                env={**env, "SLURM_PROCID": str(rank)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(RANKS)
        ]
        self.processes += started
        return started

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    job.end()


def finish(processes: list[subprocess.Popen[str]]) -> list[str]:
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * RANKS, outputs
    return outputs[0].splitlines()


def wait_for_step(folder: Path, step: int) -> None:
    ends_at = time.monotonic() + 30
    while time.monotonic() < ends_at:
        found = latest(str(folder))
        if found is not None and found.step is not None and found.step >= step:
            return
        time.sleep(0.02)
    raise AssertionError(f"no checkpoint of step {step}")


def test_an_interruption_changes_nothing_in_the_result(job: Job) -> None:
    smooth = finish(job.start("smooth"))
    assert smooth[0].startswith("starting from step 0")
    first = job.start("rough", step_s=0.01)
    wait_for_step(job.folder / "rough", 20)
    first[1].kill()
    assert [process.wait(20) for process in (first[0], first[2])] == [1, 1]
    assert "lost a peer" in first[0].communicate()[0]
    rough = finish(job.start("rough", restarts=1))
    resumed = int(rough[0].split("step ")[1].split()[0])
    assert rough[0].startswith("resumed from step")
    assert 20 <= resumed < 60
    assert rough[-1] == smooth[-1]
    assert rough[-1].startswith("finished step 60 weights ")


def test_asked_to_save_it_saves_on_all_ranks_and_goes_on(job: Job) -> None:
    processes = job.start("asked", steps=70, step_s=0.01, checkpoint_every=1000)
    stdout = processes[0].stdout
    assert stdout is not None
    while "step 10 " not in stdout.readline():
        pass
    processes[2].send_signal(signal.SIGUSR1)
    lines = finish(processes)
    steps = [int(line.split()[-1]) for line in lines if line.startswith("checkpoint step")]
    assert len(steps) == 2
    assert 10 < steps[0] < 70
    assert steps[1] == 70


def test_on_demand_survivors_hang_as_a_collective_does(job: Job) -> None:
    processes = job.start("hang", steps=10_000, step_s=0.01, on_peer_loss="hang")
    wait_for_step(job.folder / "hang", 10)
    processes[1].kill()
    stdout = processes[0].stdout
    assert stdout is not None
    while "waiting as a collective would" not in stdout.readline():
        pass
    time.sleep(0.2)
    assert [processes[0].poll(), processes[2].poll()] == [None, None]


def test_a_newer_run_ends_one_that_trains_on(job: Job) -> None:
    cut_off = job.start("cut", steps=10_000, step_s=0.01)
    wait_for_step(job.folder / "cut", 10)
    newer = finish(job.start("cut", restarts=1, steps=60))
    assert newer[-1].startswith("finished step "), "at least 60; more where the other had saved a later one by then"
    outputs = [process.communicate(timeout=30)[0] for process in cut_off]
    assert all(process.returncode == 1 for process in cut_off)
    assert any("has taken over" in output for output in outputs)
