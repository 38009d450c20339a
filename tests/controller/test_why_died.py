"""Why a run died, and whether a fault of a node is to be blamed: tables of what was seen and what is said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.controller.why_died import NearFault, advice, classify, speaks_against
from holdfast.model.cluster import JobKey
from holdfast.model.job_ends import Cause, JobEnd, Reading
from holdfast.model.output_signs import signs_of

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
    said = {"reading": read, "clues": signs_of(output or ""), "reason": "", **changed}
    key = JobKey("c", 5, ENDED - timedelta(hours=1))
    return JobEnd(key, 0, "ada", 1000, "train", ("n1", "n2"), state, code, ended_at=ENDED, seen_at=ENDED, **said)


def _fault(before_s: float = 30, **changed: Any) -> NearFault:
    at = ENDED - timedelta(seconds=before_s)
    said = {"fault_at": at, "until": at + timedelta(minutes=10), "kills": True, **changed}
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
    ("FAILED", "85:0", "", Cause.STOPPED),
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
    advice(end)


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
