"""Jobs of frameworks that save without Holdfast, on a real Slurm: three faults in a row, and no report but the job's directory."""

from __future__ import annotations

import re
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from holdfast.model.event import EventKind
from holdfast.model.incidents.incident import RecoveryPhase
from support.practice import eventually
from support.site import PATIENCE_S, Drill, MakeDrill

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400)]

JOB = Path(__file__).parent / "framework_job.py"
EVERY = 20
FASTER = {"jobs": {"survey_s": 20.0}}
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")


def _steps(drill: Drill, job_id: int) -> list[list[int]]:
    """The steps of each run."""
    runs = drill.output(job_id).split("resumed from step ")[1:]
    return [[int(number) for number in re.findall(r"^step (\d+)$", run, re.MULTILINE)] for run in runs]


def _past_a_save(drill: Drill, job_id: int, run: int) -> bool:
    steps = _steps(drill, job_id)
    return len(steps) == run + 1 and len(steps[run]) >= 2 * EVERY + 5


def _resumed(drill: Drill, job_id: int, run: int) -> bool:
    recoveries = drill.recoveries(job_id)
    return drill.run(job_id) == ("RUNNING", run) and [r.phase for r in recoveries] == [RecoveryPhase.RESUMED] * run


@pytest.mark.parametrize("layout", [pytest.param("dcp", marks=needs_torch), "huggingface", "lightning", "plain"])
def test_three_faults_in_a_row_under_a_job_that_reports_nothing(make_drill: MakeDrill, layout: str) -> None:
    drill = make_drill(nodes=5, spares=1, heartbeat_s=1.0, settings=FASTER)
    folder = drill.practice.folder / "jobs" / "ckpt"
    folder.mkdir()
    script = (
        f"{sys.executable} -m holdfast_checkpoint register {folder} || exit 9\n"
        f"exec srun {sys.executable} {JOB} {layout} {folder}\n"
    )
    job_id = drill.practice.sbatch(script, "--gres=gpu:8", "--comment=holdfast", "--open-mode=append")
    for run in range(3):
        eventually(partial(_past_a_save, drill, job_id, run), within_s=PATIENCE_S)
        (bad,) = drill.job(job_id).nodes
        drill.inject.xid(bad, 79, 3)
        eventually(partial(_resumed, drill, job_id, run + 1), within_s=PATIENCE_S)
    assert drill.job(job_id).state == "RUNNING", "not held"
    resumed, runs = drill.resumed_from(job_id)[-3:], _steps(drill, job_id)
    recoveries = drill.recoveries(job_id)
    assert [r.resumed_step for r in recoveries] == resumed
    assert [r.checkpoint_step for r in recoveries] == resumed
    assert all(r.checkpoint_known for r in recoveries)
    events = [e for e in drill.store.events(kinds=(EventKind.JOB_RESUMED,)) if e.job is not None]
    lost = [event.detail["lost_steps"] for event in events]
    really = [run[-1] - step for run, step in zip(runs, resumed, strict=False)]
    assert all(abs(said - real) < EVERY for said, real in zip(lost, really, strict=True)), (lost, really)
    sys.stdout.write(f"{layout}: resumed from {resumed}, steps lost {lost}, really {really}\n")
