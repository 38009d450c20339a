"""``srun torchrun`` with two ranks a node on a real Slurm: a fault in the middle of a save, two Xids in a minute, then a bug of the job."""

from __future__ import annotations

import re
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from holdfast.model.incidents.incident import RecoveryPhase
from holdfast.model.jobs.job_ends import Cause, Reading
from holdfast_checkpoint import latest
from support.practice import eventually
from support.site import PATIENCE_S, Drill, MakeDrill

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.timeout(500),
    pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch"),
]

JOB = Path(__file__).parent / "torchrun_job.py"
TORN, EVERY = 12, 4


def _script(folder: Path, port: int) -> str:
    torchrun = (
        f"{sys.executable} -W ignore -m torch.distributed.run --nnodes=2 --nproc-per-node=2 --rdzv-backend=c10d --rdzv-id=$SLURM_JOB_ID "
        f"--rdzv-endpoint=127.0.0.1:$PORT --rdzv-conf=is_host=$((1-SLURM_NODEID)) {JOB} {folder}"
    )
    # A separate port for each run: all nodes of the practice are one machine.
    return (
        f"export OMP_NUM_THREADS=1 PORT=$(({port}+${{SLURM_RESTART_COUNT:-0}}))\n"
        f"exec srun --ntasks-per-node=1 sh -c '{torchrun}'\n"
    )


def _steps(drill: Drill, job_id: int) -> list[list[int]]:
    """The steps of each run."""
    runs = drill.output(job_id).split("resumed from step ")[1:]
    return [[int(number) for number in re.findall(r"^step (\d+)$", run, re.MULTILINE)] for run in runs]


def _resumed(drill: Drill, job_id: int, run: int) -> bool:
    phases = [r.phase for r in drill.recoveries(job_id)]
    return drill.run(job_id) == ("RUNNING", run) and phases == [RecoveryPhase.RESUMED] * run


def test_faults_cost_the_steps_since_the_last_save_and_a_bug_is_the_jobs_own(make_drill: MakeDrill) -> None:
    drill = make_drill(nodes=6, spares=2, heartbeat_s=1.0)
    folder = drill.practice.folder / "jobs" / "torchrun" / "ckpt"
    folder.parent.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ("--nodes=2", "--ntasks-per-node=1", "--gres=gpu:8", "--comment=holdfast", "--open-mode=append")
    job_id = drill.practice.sbatch(_script(folder, port), *options)

    def account() -> str:
        return drill.account(job_id)

    eventually((folder.parent / "saving").exists, within_s=PATIENCE_S, why=account)
    drill.inject.xid(drill.job(job_id).nodes[1], 79, 3)  # in the middle of rank 3's save
    eventually(lambda: _resumed(drill, job_id, 1), within_s=PATIENCE_S, why=account)
    eventually(lambda: _steps(drill, job_id)[-1][-1:] >= [TORN], within_s=PATIENCE_S, why=account)
    drill.inject.xid(drill.job(job_id).nodes[0], 79, 3)  # the second within a minute or so
    eventually(lambda: _resumed(drill, job_id, 2), within_s=PATIENCE_S, why=account)
    recoveries, resumed, runs = drill.recoveries(job_id), drill.resumed_from(job_id), _steps(drill, job_id)
    assert resumed[:2] == [0, TORN - EVERY], "the torn save counts for nothing"
    assert [r.resumed_step for r in recoveries] == resumed[1:]
    assert all(before[-1] - at <= 2 * EVERY for before, at in zip(runs[:-1], resumed[1:], strict=True)), (runs, resumed)

    (folder.parent / "bug").touch()
    eventually(lambda: drill.job(job_id).state == "FAILED", within_s=PATIENCE_S, why=account)

    def read() -> bool:
        ends = drill.store.job_ends(job_id)
        return bool(ends) and ends[-1].restarts == 2 and ends[-1].reading is not Reading.PENDING

    eventually(read, within_s=PATIENCE_S, why=account)
    end = drill.store.job_ends(job_id)[-1]
    assert (end.cause, end.reading) == (Cause.CODE, Reading.READ), end.text
    assert "KeyError: 'loss'" in end.text
    assert drill.run(job_id) == ("FAILED", 2), "not started again"
    newest = latest(str(folder))
    assert newest is not None
    assert newest.step is not None
    assert newest.step >= resumed[-1]
