"""Rules about Slurm's settings that elastic jobs live by (docs/how-to-elastic-slurm.md).

A site without such jobs need not have them: then each is a hint."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.doctor.advice import Advice, AdviceLevel
from holdfast.doctor.facts import DoctorFacts, SlurmFacts, names
from holdfast.model.elastic_jobs.elastic import NO_REQUEUE_EXIT, REQUEUE_EXIT
from holdfast.model.slurm.cluster import Partition

SHORT_GRACE_S = 10
"""A step and a leave must fit in: steps of large models take some seconds."""
_NO_PREEMPTION = "preempt/none"


def requeue_exit(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    codes = _codes(slurm.value("RequeueExit"))
    if "RequeueExit" in slurm.config and REQUEUE_EXIT not in codes:
        joined = ",".join(part for part in (slurm.value("RequeueExit"), str(REQUEUE_EXIT)) if part)
        yield Advice(
            "elastic.requeue_exit",
            _urgent(slurm),
            f"RequeueExit lacks {REQUEUE_EXIT}, with which a group of an elastic job leaves",
            "A group that leaves in good order (preempted, drained, asked to) is over for Slurm instead of waiting for its next start.",
            f"slurm.conf: RequeueExit={joined}",
        )
    wrong = sorted({NO_REQUEUE_EXIT} & (codes | _codes(slurm.value("RequeueExitHold"))))
    if wrong:
        yield Advice(
            "elastic.no_requeue_exit",
            AdviceLevel.WARNING,
            f"RequeueExit or RequeueExitHold has {NO_REQUEUE_EXIT}, which means: do not queue me again",
            "A job that exits because it cannot continue is started over and over.",
            f"slurm.conf: RequeueExit and RequeueExitHold without {NO_REQUEUE_EXIT}",
        )


def preemption(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    kind = slurm.value("PreemptType")
    if "PreemptType" not in slurm.config:
        return
    if kind in ("", _NO_PREEMPTION):
        yield Advice(
            "elastic.no_preemption",
            AdviceLevel.HINT,
            "PreemptType is preempt/none: no job gives way to another",
            "Elastic jobs shrink for more important ones only when Holdfast asks, and Slurm guarantees no job its minimum.",
            "slurm.conf: PreemptType=preempt/partition_prio, PreemptMode=REQUEUE",
        )
    elif "REQUEUE" not in slurm.value("PreemptMode").upper():
        yield Advice(
            "elastic.preempt_mode",
            _urgent(slurm),
            f"PreemptMode={slurm.value('PreemptMode')}: preempted jobs are not queued again",
            "A group that gave way never comes back: the elastic job does not grow again.",
            "slurm.conf: PreemptMode=REQUEUE",
        )


def grace_time(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    if slurm.value("PreemptType") != "preempt/partition_prio":
        return
    short = [p.name for p in _flexible(slurm) if p.grace_time_s < SHORT_GRACE_S]
    if short:
        yield Advice(
            "elastic.grace_time",
            _urgent(slurm),
            f"GraceTime is below {SHORT_GRACE_S} s where jobs are preempted: {names(short)}",
            "A group is killed in the middle of its step; the others repeat that step, and wait for their collective's time-out.",
            f"slurm.conf: PartitionName={short[0]} … GraceTime=30",
        )


def two_partitions(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    if slurm.value("PreemptType") != "preempt/partition_prio" or not slurm.partitions:
        return
    flexible = _flexible(slurm)
    safe = [p for p in slurm.partitions if p not in flexible]
    if not flexible or not safe:
        lacks = "none whose jobs may be preempted" if not flexible else "none whose jobs are safe"
        yield Advice(
            "elastic.two_partitions",
            _urgent(slurm),
            f"of {len(slurm.partitions)} partitions there is {lacks}",
            "An elastic job needs both: its least number of groups where nothing preempts, the rest where Slurm may take them.",
            "slurm.conf: PartitionName=flex Nodes=… PriorityTier=1 PreemptMode=REQUEUE GraceTime=30",
        )


def _flexible(slurm: SlurmFacts) -> list[Partition]:
    """Partitions whose jobs give way to those of a higher tier."""
    highest = max((p.priority_tier for p in slurm.partitions), default=0)
    return [p for p in slurm.partitions if p.priority_tier < highest and "OFF" not in p.preempt_mode.upper()]


def _urgent(slurm: SlurmFacts) -> AdviceLevel:
    return AdviceLevel.WARNING if slurm.elastic_jobs else AdviceLevel.HINT


def _codes(text: str) -> set[int]:
    """``1,85-87`` → its numbers."""
    codes: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            codes.update(range(int(first), int(last or first) + 1))
    return codes


RULES = (requeue_exit, preemption, grace_time, two_partitions)
