"""Why a run died, and whether a node's fault is the cause: tables of observations and verdicts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.decisions.job_ends.why_died import NearFault, classify, speaks_against
from holdfast.model.jobs.job_ends import Cause, JobEnd, Reading
from holdfast.model.jobs.output_signs import signs_of
from holdfast.model.slurm.cluster import JobKey

ENDED = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
BUG = "Traceback (most recent call last):\nKeyError: 'loss'"
NCCL = "torch.distributed.DistBackendError: NCCL error"
CUDA = "RuntimeError: CUDA error: unspecified launch failure"
LOST = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
FULL = "OSError: [Errno 28] No space left on device"
OOM = "slurmstepd: error: Detected 1 oom_kill event in StepId=5.0."
SEGV = "srun: error: n1: task 0: Segmentation fault"
EXITED = "srun: error: n1: task 0: Exited with exit code 1"
EXITED_ELSEWHERE = "srun: error: n2: task 0: Exited with exit code 1"


def _end(state: str, code: str, output: str | None = "", **changed: Any) -> JobEnd:
    read = Reading.UNREADABLE if output is None else Reading.READ
    said = {"reading": read, "clues": signs_of(output or ""), "reason": "", "output": "/o/7.out", **changed}
    key = JobKey("c", 5, ENDED - timedelta(hours=1))
    return JobEnd(key, 0, "ada", 1000, "train", ("n1", "n2"), state, code, ended_at=ENDED, seen_at=ENDED, **said)


def _fault(before_s: float = 30, **changed: Any) -> NearFault:
    at = ENDED - timedelta(seconds=before_s)
    said: dict[str, Any] = {"fault_at": at, "until": at + timedelta(minutes=10), "kills": True, **changed}
    return NearFault("i1", "n1", "gpu.xid 79: fell off the bus", **said)


ALONE = [
    ("FAILED", "1:0", BUG, Cause.CODE),
    ("FAILED", "1:0", f"{NCCL}\n{BUG}", Cause.CODE),
    ("FAILED", "1:0", FULL, Cause.DISK),
    ("FAILED", "1:0", f"{BUG}\n{FULL}", Cause.DISK),
    ("FAILED", "1:0", OOM, Cause.MEMORY),
    ("FAILED", "0:9", OOM, Cause.MEMORY),
    ("FAILED", "139:0", SEGV, Cause.CODE),
    ("FAILED", "139:0", None, Cause.CODE),
    ("FAILED", "0:11", None, Cause.CODE),
    ("FAILED", "134:0", "", Cause.CODE),
    ("FAILED", "127:0", "", Cause.CODE),
    ("FAILED", "1:0", NCCL, Cause.UNKNOWN),
    ("FAILED", "1:0", CUDA, Cause.UNKNOWN),
    ("FAILED", "1:0", LOST, Cause.UNKNOWN),
    ("FAILED", "1:0", EXITED, Cause.UNKNOWN),
    ("FAILED", "1:0", "", Cause.UNKNOWN),
    ("FAILED", "1:0", None, Cause.UNKNOWN),
    ("FAILED", "0:9", "", Cause.UNKNOWN),
    ("FAILED", "137:0", "srun: error: n1: task 0: Killed", Cause.UNKNOWN),
    ("FAILED", "143:0", "", Cause.UNKNOWN),
    ("FAILED", "85:0", "", Cause.UNKNOWN),
    ("FAILED", "93:0", None, Cause.UNKNOWN),
    ("FAILED", "nonsense", None, Cause.UNKNOWN),
    ("TIMEOUT", "0:0", None, Cause.TIME),
    ("DEADLINE", "0:0", None, Cause.TIME),
    ("OUT_OF_MEMORY", "0:125", None, Cause.MEMORY),
    ("CANCELLED", "0:15", None, Cause.STOPPED),
    ("PREEMPTED", "0:0", None, Cause.STOPPED),
    ("NODE_FAIL", "0:0", None, Cause.NODE),
    ("BOOT_FAIL", "0:0", None, Cause.NODE),
]


@pytest.mark.parametrize(("state", "code", "output", "cause"), ALONE)
def test_without_a_fault_nearby(state: str, code: str, output: str | None, cause: Cause) -> None:
    end = _end(state, code, output)
    died = classify(end)
    assert died.cause is cause, died.text
    assert died.text
    assert not died.incident_id


@pytest.mark.parametrize("code", ["85:0", "93:0"])
def test_the_exit_status_of_a_group_that_leaves_means_that_only_of_an_elastic_job(code: str) -> None:
    died = classify(_end("FAILED", code), of_elastic=True)
    assert (died.cause, died.text) == (Cause.STOPPED, f"a group of an elastic job left (exit code {code[:2]})")
    assert "elastic" not in classify(_end("FAILED", code)).text
    assert classify(_end("FAILED", "75:0"), of_elastic=True).cause is Cause.UNKNOWN


BESIDE = [
    # output, exit code, fault, what the evidence says of it, cause
    (LOST, "1:0", _fault(), True, Cause.NODE),
    (CUDA, "1:0", _fault(), True, Cause.NODE),
    (NCCL, "1:0", _fault(), True, Cause.NODE),
    (EXITED, "1:0", _fault(), True, Cause.NODE),
    (SEGV, "139:0", _fault(), True, Cause.NODE),
    (None, "0:9", _fault(), True, Cause.NODE),
    (None, "1:0", _fault(), None, Cause.UNKNOWN),
    ("", "1:0", _fault(), None, Cause.UNKNOWN),
    (EXITED_ELSEWHERE, "1:0", _fault(), None, Cause.UNKNOWN),
    (BUG, "1:0", _fault(), False, Cause.CODE),
    (f"{NCCL}\n{BUG}", "1:0", _fault(), False, Cause.CODE),
    (f"{CUDA}\n{BUG}", "1:0", _fault(), True, Cause.NODE),
    (FULL, "1:0", _fault(), False, Cause.DISK),
    (OOM, "1:0", _fault(), False, Cause.MEMORY),
    # of another time, or of a kind that ends no job
    (LOST, "1:0", _fault(-3), False, Cause.UNKNOWN),
    (None, "0:9", _fault(-3), False, Cause.UNKNOWN),
    (LOST, "1:0", _fault(601), False, Cause.UNKNOWN),
    (None, "1:0", _fault(5 * 3600), False, Cause.UNKNOWN),
    (NCCL, "1:0", _fault(kills=False), False, Cause.UNKNOWN),
    (None, "1:0", _fault(kills=False), False, Cause.UNKNOWN),
    (BUG, "1:0", _fault(kills=False), False, Cause.CODE),
    (None, "1:0", _fault(-30, proved=True), True, Cause.NODE),
]


@pytest.mark.parametrize(("output", "code", "fault", "said", "cause"), BESIDE)
def test_with_a_fault_of_a_node(
    output: str | None, code: str, fault: NearFault, said: bool | None, cause: Cause
) -> None:
    end = _end("FAILED", code, output)
    assert speaks_against(end, fault) is said
    died = classify(end, [fault])
    assert died.cause is cause, died.text
    assert died.incident_id == ("" if said is False else "i1")


@pytest.mark.parametrize(("after_s", "dead", "said"), [(60, True, True), (1800, True, True), (1800, False, False)])
def test_slurms_own_word_that_a_node_failed_counts_however_late_it_comes_for_a_dead_node(
    after_s: float, dead: bool, said: bool
) -> None:
    assert speaks_against(_end("NODE_FAIL", "0:0", None), _fault(after_s, dead=dead)) is said


def test_the_second_in_which_both_happened_counts() -> None:
    """Slurm cuts the fraction off."""
    assert speaks_against(_end("FAILED", "0:9", None), _fault(-1.5)) is True


@pytest.mark.parametrize(
    ("began_s", "over_s", "said"),
    [
        (-60, -100, False),
        (-60, -56, False),  # the node takes its next job at once; the incident closes a moment later
        (-60, -50, True),
        (-60, None, True),
        (None, -100, True),  # a row of an earlier release
    ],
)
def test_a_fault_that_was_over_when_the_run_began_never_reaches_it(
    began_s: float | None, over_s: float | None, said: bool
) -> None:
    """Seconds after the run's end."""
    began, over = (None if s is None else ENDED + timedelta(seconds=s) for s in (began_s, over_s))
    fault = _fault(300, over_at=over)
    end = _end("FAILED", "1:0", LOST, started_at=began)
    assert speaks_against(end, fault) is said
    assert classify(end, [fault]).incident_id == ("i1" if said else "")
    assert speaks_against(end, replace(fault, proved=True)) is True


@pytest.mark.parametrize(
    ("code", "error", "cause", "words"),
    [
        ("0:53", 4021, Cause.NO_FILE, "could not open the file of its output (/o/7.out), or of its input"),
        ("0:53", None, Cause.NO_FILE, "could not open the file of its output (/o/7.out), or of its input"),
        ("0:53", 0, Cause.UNKNOWN, "real-time signal 53 ended it; no one says who sent it"),
        ("0:40", 0, Cause.UNKNOWN, "real-time signal 40 ended it; no one says who sent it"),
        (
            "0:40",
            None,
            Cause.UNKNOWN,
            "real-time signal 40 ended it; no one says who sent it. It may as well be an error",
        ),
        ("0:48", 4016, Cause.UNKNOWN, "its script never began: Slurm's error 4016; the log of slurmd on n1"),
        ("0:4", 4100, Cause.UNKNOWN, "its script never began: Slurm's error 4100"),
        ("0:1", 0, Cause.UNKNOWN, "SIGHUP ended it"),
        ("0:10", None, Cause.UNKNOWN, "SIGUSR1 ended it"),
        ("0:11", 0, Cause.CODE, "its program crashed (SIGSEGV)"),
        ("0:9", None, Cause.UNKNOWN, "SIGKILL ended it; the kernel may have"),
        ("0:99", None, Cause.UNKNOWN, "it ended with exit code 0:99"),
    ],
)
def test_errors_of_slurms_own_and_signals(code: str, error: int | None, cause: Cause, words: str) -> None:
    """Tried on 22.05, whose squeue shows 4021 and 53 as such; scontrol shows both as 0:53."""
    died = classify(_end("FAILED", code, None, slurm_error=error))
    assert died.cause is cause
    assert words in died.text


def test_a_file_that_cannot_be_opened_is_no_gpus_fault_and_may_be_a_nodes() -> None:
    end = _end("FAILED", "0:53", None, slurm_error=4021, stdout="/o/7.log")
    assert "the file of its output (/o/7.log and /o/7.out)" in classify(end).text
    assert speaks_against(end, _fault(of_gpus=True)) is False
    assert speaks_against(end, _fault()) is None
    died = classify(end, [_fault()])
    assert (died.cause, died.incident_id) == (Cause.UNKNOWN, "i1")
    assert "which may have ended it: Slurm could not open the file of its output" in died.text


def test_a_real_time_signal_speaks_against_no_node() -> None:
    assert speaks_against(_end("FAILED", "0:40", None, slurm_error=0), _fault()) is None
    assert speaks_against(_end("FAILED", "0:11", None, slurm_error=0), _fault()) is True
