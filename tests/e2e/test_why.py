"""Jobs die on a real Slurm, each of another cause: `holdfast why` reports the true cause, or that it is not known."""

from __future__ import annotations

import sys
from datetime import timedelta

import pytest

from holdfast.model.actions.action import IntentState
from holdfast.model.incidents.incident import IncidentState, RecoveryPhase
from holdfast.model.jobs.job_ends import Cause, JobEnd, Reading
from support.practice import eventually
from support.site import PATIENCE_S, Drill

pytestmark = pytest.mark.slurm

DEATHS = {
    "bug": ("import json; json.loads('{}')['loss']", Cause.CODE, "KeyError: 'loss'"),
    "segfault": ("import os; os.kill(os.getpid(), 11)", Cause.CODE, "Segmentation fault"),
    "full_disk": ("open('/dev/full', 'wb', 0).write(b'x')", Cause.DISK, "No space left on device"),
    "memory": ("bytearray(1 << 60)", Cause.MEMORY, "MemoryError"),
    "killed": ("import os; os.kill(os.getpid(), 9)", Cause.UNKNOWN, ""),
    "exit": ("raise SystemExit(3)", Cause.UNKNOWN, "exit code 3"),
}


def _end(drill: Drill, job_id: int) -> JobEnd:
    """The end of its last run, once its output was read or could not be."""

    def settled() -> bool:
        ends = drill.store.job_ends(job_id)
        return bool(ends) and ends[-1].reading is not Reading.PENDING

    eventually(settled, within_s=PATIENCE_S)
    return drill.store.job_ends(job_id)[-1]


def test_each_death_is_told_as_it_was(drill: Drill) -> None:
    jobs = {
        name: drill.practice.sbatch(f'srun {sys.executable} -c "{code}"', "--comment=holdfast")
        for name, (code, _, _) in DEATHS.items()
    }
    for name, (_, cause, words) in DEATHS.items():
        end = _end(drill, jobs[name])
        assert end.reading is Reading.READ, f"{name}: {end.reading_note}"
        assert end.cause is cause, f"{name}: {end.text}"
        assert words in end.text, f"{name}: {end.text}"
        assert (drill.job(jobs[name]).state, drill.job(jobs[name]).restarts) == ("FAILED", 0), name
    assert not drill.faults()


@pytest.mark.parametrize(
    ("option", "path"),
    [
        ("--output=/no/such/folder/%x-%j.out", "/no/such/folder/wrap-{job}.out"),
        ("--chdir=/no/such/folder", "/no/such/folder/slurm-{job}.out"),
    ],
)
def test_a_file_that_slurm_cannot_open_is_no_signal(drill: Drill, option: str, path: str) -> None:
    job_id = int(drill.practice.command("sbatch", "--parsable", option, "--wrap", "true").split(";")[0])
    end = _end(drill, job_id)
    assert (end.cause, end.exit_code, end.slurm_error) == (Cause.NO_FILE, "0:53", 4021)
    assert end.output == path.format(job=job_id)
    assert end.output in end.text


def test_a_real_time_signal_of_the_same_number_is_one(drill: Drill) -> None:
    end = _end(drill, drill.practice.sbatch("kill -53 $$"))
    assert (end.cause, end.exit_code, end.slurm_error) == (Cause.UNKNOWN, "0:53", 0)
    assert "real-time signal 53" in end.text


def test_the_default_output_of_an_arrays_element_is_read(drill: Drill) -> None:
    folder = drill.practice.folder / "jobs"
    printed = drill.practice.command(
        *("sbatch", "--parsable", "--array=1-2", f"--chdir={folder}", "--wrap", "echo 'KeyError: 1'; exit 1")
    )
    array = int(printed.split(";")[0])

    def elements() -> list[int]:
        return [
            j.key.job_id for j in drill.scheduler.view().jobs.values() if (j.array_job_id, j.state) == (array, "FAILED")
        ]

    eventually(lambda: len(elements()) == 2, within_s=PATIENCE_S)
    ends = [_end(drill, job_id) for job_id in elements()]
    assert {end.output for end in ends} == {str(folder / f"slurm-{array}_{task}.out") for task in (1, 2)}
    assert [end.cause for end in ends] == [Cause.CODE] * 2, [end.reading_note for end in ends]


def test_a_command_that_srun_cannot_find(drill: Drill) -> None:
    """slurmstepd reports it, under a name that holds the node's where slurmd is built for several on one host."""
    end = _end(drill, drill.practice.sbatch("srun /no/such/program"))
    assert end.cause is Cause.CODE, end.text
    assert "execve" in end.text


def test_a_job_that_began_once_its_node_was_repaired_is_no_victim_of_the_old_fault(drill: Drill) -> None:
    drill.inject.xid("n1", 79, gpu=3)
    fault = drill.incident_on("n1")
    eventually(
        lambda: drill.incident_on("n1").state is not IncidentState.OPEN, within_s=PATIENCE_S
    )  # no job starts there now
    job_id = drill.practice.sbatch("sleep 2; kill -9 $$", "--nodelist=n1", "--gres=gpu:8", "--comment=holdfast")
    end = _end(drill, job_id)
    assert end.started_at is not None
    assert end.ended_at - fault.fault_at < timedelta(minutes=10)
    assert (end.cause, end.incident_id, drill.job(job_id).restarts) == (Cause.UNKNOWN, "", 0), end.text


def test_a_cancelled_job_was_cancelled(drill: Drill) -> None:
    job_id = drill.sleeper()
    drill.practice.command("scancel", str(job_id))
    end = _end(drill, job_id)
    assert (end.cause, end.slurm_state) == (Cause.STOPPED, "CANCELLED")


@pytest.mark.soak
def test_the_time_limit_is_told(drill: Drill) -> None:
    job_id = drill.sleeper("--time=1")
    eventually(lambda: drill.job(job_id).state == "TIMEOUT", within_s=180.0)
    assert _end(drill, job_id).cause is Cause.TIME


def test_a_job_that_failed_of_a_fault_without_consent_is_told_and_its_dependents_go_on_alone(drill: Drill) -> None:
    flag = drill.practice.folder / "jobs" / "fail-now"
    flag.unlink(missing_ok=True)
    script = f"while [ ! -e {flag} ]; do sleep 0.1; done; kill -9 $$"
    job_id = drill.practice.sbatch(script, "--nodes=1", "--gres=gpu:8")
    eventually(lambda: drill.job(job_id).state == "RUNNING", within_s=PATIENCE_S)
    (node,) = drill.job(job_id).nodes
    after = drill.practice.sbatch("exec srun sleep 3600", f"--dependency=afternotok:{job_id}")
    drill.inject.xid(node, 79, gpu=3)
    eventually(lambda: "did not opt in" in drill.job(job_id).admin_comment, within_s=PATIENCE_S)
    flag.touch()
    end = _end(drill, job_id)
    assert (end.cause, end.incident_id) == (Cause.NODE, drill.incident_on(node).id), end.text
    eventually(lambda: drill.job(after).state == "RUNNING", within_s=PATIENCE_S)
    phases = (RecoveryPhase.LEFT_ALONE, RecoveryPhase.AWAITING_CONSENT)
    eventually(lambda: drill.recoveries(job_id)[-1].phase in phases, within_s=PATIENCE_S)
    assert (drill.job(job_id).state, drill.job(job_id).restarts) == ("FAILED", 0)
    assert f"scontrol requeue {job_id}" in drill.recoveries(job_id)[-1].note
    assert not [i for i in drill.intents("TellOwner") if i.state is IntentState.FAILED], "Slurm takes no note of it now"
