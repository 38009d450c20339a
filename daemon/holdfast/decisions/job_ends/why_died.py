"""Cause of death of a run, from Slurm's state, its exit code, its last lines of output and the faults of its nodes. Pure.

``unknown`` unless the evidence shows a cause. Only ``node_fault`` speaks against a node; a job's output never leads to it unless a fault of
its node was found, or Slurm itself reports one (ADR 26)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.decisions.job_ends.exit_codes import (
    CANNOT_OPEN,
    CRASHES,
    KILL,
    may_be_slurms,
    name_of,
    real_time_signal_of,
    signal_of,
    slurm_error_of,
    status_of,
)
from holdfast.model.elastic_jobs.elastic import NO_REQUEUE_EXIT, REQUEUE_EXIT
from holdfast.model.jobs.job_ends import Cause, JobEnd, Reading, Sign

CLOCKS = timedelta(seconds=2)
"""Slurm shows an end in whole seconds, and its clock and the agents' ages of findings differ a little."""
BACK = timedelta(seconds=5)
"""A node that returns to service takes its next job at once; the end of its incident is recorded up to this much later."""


@dataclass(frozen=True, slots=True)
class NearFault:
    """A fault of one of the job's nodes that may have to do with its end."""

    incident_id: str
    node: str
    headline: str
    fault_at: datetime
    until: datetime
    """A later end is not attributed to it."""
    kills: bool
    """A fault of this kind ends jobs."""
    dead: bool = False
    """The node is dead: its jobs are lost whenever Slurm ends them."""
    proved: bool = False
    """The node was found at fault because of this very run."""
    over_at: datetime | None = None
    """Time when its incident was over, or the repaired machine was validated; None: neither. A run that started later was not affected."""
    of_gpus: bool = False
    """It is certain that only GPUs are at fault: it keeps Slurm from opening no file."""


@dataclass(frozen=True, slots=True)
class Died:
    """Cause, as a value and as a sentence."""

    cause: Cause
    text: str
    incident_id: str = ""


def classify(end: JobEnd, faults: Sequence[NearFault] = (), *, of_elastic: bool = False) -> Died:
    """``faults``: of the job's nodes, whatever their time. ``of_elastic``: the job declares that it is elastic; of any other one the
    statuses with which groups leave are its program's own."""
    return _by_state(end, faults) or _by_fault(end, faults) or _by_itself(end, of_elastic=of_elastic)


def began_after(started_at: datetime | None, over_at: datetime | None) -> bool:
    """Whether a run started after the fault was over; False if one of both times is not known."""
    return started_at is not None and over_at is not None and over_at - BACK <= started_at


def in_reach(end: JobEnd, fault: NearFault) -> bool:
    """Whether the run may have ended because of the fault, by their times: not if the fault appeared only afterwards, or was over when the
    run started."""
    if fault.proved:
        return True
    if began_after(end.started_at, fault.over_at):
        return False
    after = end.ended_at + CLOCKS >= fault.fault_at
    return after and (end.ended_at <= fault.until or (fault.dead and end.slurm_state == "NODE_FAIL"))


def speaks_against(end: JobEnd, fault: NearFault) -> bool | None:
    """Whether the evidence shows that the run ended because of this fault of its node; None: there is no evidence."""
    if not in_reach(end, fault) or not fault.kills:
        return False
    if fault.proved or end.slurm_state == "NODE_FAIL" or end.reason == "NodeDown":  # rule prose: Slurm's own words
        return True
    if slurm_error_of(end) == CANNOT_OPEN:
        return False if fault.of_gpus else None
    named = [clue for clue in end.clues if clue.node == fault.node]
    if any(clue.sign is Sign.NODE_FAILED for clue in named) or end.shows(Sign.GPU_LOST):
        return True
    if end.shows(Sign.MEMORY, Sign.DISK, Sign.TIME, Sign.STOPPED, Sign.ASSERT):
        return False
    if end.shows(Sign.CUDA):
        return True
    if end.shows(Sign.EXCEPTION):  # of one rank: the others' NCCL errors follow from it
        return False
    if end.shows(Sign.NCCL):
        return True
    return True if named or signal_of(end) or end.shows(Sign.NODE_FAILED, Sign.SIGNAL) else None


def _by_state(end: JobEnd, faults: Sequence[NearFault]) -> Died | None:
    """Cause that Slurm's own state settles."""
    state, reason = end.slurm_state, end.reason
    if state in ("TIMEOUT", "DEADLINE"):
        return Died(Cause.TIME, "it reached its time limit" if state == "TIMEOUT" else "it reached its deadline")
    if state == "OUT_OF_MEMORY":
        return Died(Cause.MEMORY, "it used more memory than it asked for: Slurm ended it; ask for more (--mem)")
    if state in ("PREEMPTED", "REVOKED"):
        return Died(Cause.STOPPED, "Slurm preempted it for another job")
    if state == "CANCELLED":
        return Died(Cause.STOPPED, _cancelled(end))
    if state not in ("NODE_FAIL", "BOOT_FAIL") and reason != "NodeDown":  # rule prose: Slurm's own words
        return None
    fault = next((each for each in faults if speaks_against(end, each)), None)
    if fault is None:
        return Died(Cause.NODE, "Slurm lost one of its nodes")
    return Died(Cause.NODE, f"its node {fault.node} failed: {fault.headline}", fault.incident_id)


def _cancelled(end: JobEnd) -> str:
    if end.reason == "DependencyNeverSatisfied":  # rule prose: Slurm's own words
        return "it never ran: what it depends on can never be met"
    text = "it was cancelled (scancel), by its owner or an operator"
    return text if end.nodes else f"{text}, before it ran"


def _by_fault(end: JobEnd, faults: Sequence[NearFault]) -> Died | None:
    """The newest fault that speaks against its node: an older one may be of a machine that was exchanged since."""
    reached = (each for each in faults if in_reach(end, each) and each.kills)
    near = sorted(reached, key=lambda each: each.fault_at, reverse=True)
    spoken = [(each, speaks_against(end, each)) for each in near]
    guilty = next((each for each, said in spoken if said), None)
    if guilty is not None:
        return Died(
            Cause.NODE,
            f"node {guilty.node} had a fault ({guilty.headline}) {_ago(end, guilty)}; {_seen(end)}",
            guilty.incident_id,
        )
    open_question = next((each for each, said in spoken if said is None), None)
    if open_question is None:
        return None
    text = f"node {open_question.node} had a fault ({open_question.headline}) {_ago(end, open_question)}"
    return Died(Cause.UNKNOWN, f"{text}, which may have ended it: {_unsaid(end)}", open_question.incident_id)


def _by_itself(end: JobEnd, *, of_elastic: bool) -> Died:
    """No fault of a node was found that could have ended it."""
    if slurm_error_of(end) == CANNOT_OPEN:
        return Died(Cause.NO_FILE, f"{_not_opened(end)}, so its script never began")
    for sign, cause, text in (
        (Sign.NODE_FAILED, Cause.NODE, "srun lost a node"),
        (Sign.TIME, Cause.TIME, "a step of it reached its time limit"),
        (Sign.STOPPED, Cause.STOPPED, "a step of it was preempted or requeued"),
        (Sign.MEMORY, Cause.MEMORY, "it ran out of memory"),
        (Sign.DISK, Cause.DISK, "a file system that it writes to is full, or its quota is spent"),
        (Sign.GPU_LOST, Cause.UNKNOWN, "CUDA says that a GPU failed, and no check found a fault of one"),
        (Sign.ASSERT, Cause.CODE, "an assertion of the program failed on the GPU (device-side assert)"),
        (Sign.EXCEPTION, Cause.CODE, "the program ended with an error"),
        (Sign.CUDA, Cause.UNKNOWN, "CUDA failed, which a program or a GPU may cause, and no check found a fault"),
        (Sign.NCCL, Cause.UNKNOWN, "a connection was lost: a rank ended first, or the network or a service failed; no check found a fault"),
    ):  # fmt: skip
        clue = end.shows(sign)
        if clue is not None:
            return Died(cause, f"{text}: {clue.line}" if clue.line else text)
    return _by_code(end, of_elastic=of_elastic)


def _by_code(end: JobEnd, *, of_elastic: bool) -> Died:
    status, number, clue = status_of(end), signal_of(end), end.shows(Sign.SIGNAL)
    if slurm_error_of(end):
        text = f"its script never began: Slurm's error {slurm_error_of(end)}; the log of slurmd on {end.nodes[0]} says more"
        return Died(Cause.UNKNOWN, text)
    if number in CRASHES:
        what = f"its program crashed ({name_of(number)})"
        return Died(Cause.CODE, f"{what}: {clue.line}" if clue is not None else what)
    if number or real_time_signal_of(end):
        return Died(Cause.UNKNOWN, _signalled(end, number))
    if status in (126, 127):
        return Died(Cause.CODE, f"its script names a command that cannot be run (exit code {status})")
    if of_elastic and status in (REQUEUE_EXIT, NO_REQUEUE_EXIT) and clue is None:
        return Died(Cause.STOPPED, f"a group of an elastic job left (exit code {status})")
    if clue is not None:
        return Died(Cause.CODE, f"one of its processes crashed: {clue.line}")
    return Died(
        Cause.UNKNOWN, f"it ended with exit code {end.exit_code or '?'}, no check found a fault, and {_unsaid(end)}"
    )


def _signalled(end: JobEnd, number: int) -> str:
    if number:
        who = "the kernel may have, for want of memory, or a user" if number == KILL else "no one says who sent it"
        return f"{name_of(number)} ended it; {who}"
    what = f"real-time signal {real_time_signal_of(end)} ended it; no one says who sent it"
    return f"{what}. It may as well be an error of Slurm's own, before its script began" if may_be_slurms(end) else what


def _not_opened(end: JobEnd) -> str:
    """Slurm does not say which of them it is."""
    files = " and ".join(filter(None, (end.stdout, end.output)))
    of_output = f"the file of its output ({files})" if files else "the file of its output"
    return f"Slurm could not open {of_output}, or of its input"


def _ago(end: JobEnd, fault: NearFault) -> str:
    if fault.proved:
        return "that its pair probe showed"
    return f"{max(0, round((end.ended_at - fault.fault_at).total_seconds()))} s before"


def _seen(end: JobEnd) -> str:
    clue = end.shows(Sign.NODE_FAILED, Sign.GPU_LOST, Sign.CUDA, Sign.NCCL, Sign.SIGNAL, Sign.TASK)
    return f"its output: {clue.line}" if clue is not None else f"exit code {end.exit_code or '?'}"


def _unsaid(end: JobEnd) -> str:
    if slurm_error_of(end) == CANNOT_OPEN:
        return _not_opened(end)
    if end.reading is Reading.READ:
        return "the last lines of its output name no cause that is known"
    return f"its output was not read ({end.reading_note})" if end.reading_note else "its output was not read"
