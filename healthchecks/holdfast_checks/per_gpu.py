"""Helpers for checks that judge every GPU of a snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast_checks.details import GpuDetails
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.registry import Check, Context, Cost, Need, SampleChange, Threshold, snapshot_of
from holdfast_checks.result import Remedy, Result, ResultDetails, Scalar, Severity
from holdfast_checks.settings import CheckSettings
from holdfast_checks.snapshot import GpuSnapshot, NvmlReading, Snapshot

DETAILS_INTERVAL_S = 60.0
"""How often checks of the slow readings run."""


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """A snapshot, and what the site says."""

    snapshot: Snapshot
    settings: CheckSettings


def facts_of(context: Context) -> GpuFacts:
    """Raises NotGathered without a snapshot, NotApplicable on a node without GPUs."""
    return GpuFacts(snapshot_of(context), context.settings)


def details_check(
    check_id: str,
    title: str,
    judge: Callable[[Any], tuple[Result, ...]],
    *,
    severity: Severity,
    remedy: Remedy = Remedy.NONE,
    thresholds: tuple[Threshold, ...] = (),
    hysteresis: tuple[int, int] = (1, 1),
    compares: bool = False,
    gather: Callable[[Context], Any] = facts_of,
) -> Check:
    """A check of the slow readings. ``judge`` is given :class:`GpuFacts`, or a :class:`SampleChange` of them."""
    return Check(
        id=check_id,
        title=title,
        needs=frozenset({Need.NVML}),
        interval_s=DETAILS_INTERVAL_S,
        cost=Cost.PASSIVE,
        severity=severity,
        remedy=remedy,
        gather=gather,
        judge=judge,
        thresholds=thresholds,
        hysteresis=hysteresis,
        compares=compares,
    )


def ok(check: str, ref: GpuRef, summary: str = "") -> Result:
    """A GPU that passed."""
    return Result.ok(check, ref.component, **_of(ref, summary))


def skipped(check: str, ref: GpuRef, why: str) -> Result:
    """A GPU that the check has nothing to say of."""
    return Result.skipped(check, ref.component, **_of(ref, why))


def finding(
    check: str,
    ref: GpuRef,
    code: str,
    severity: Severity,
    remedy: Remedy,
    summary: str,
    **evidence: Scalar,
) -> Result:
    """A GPU in a state that its hardware keeps until it is repaired."""
    about = _of(ref, summary) | {"code": code, "evidence": evidence}
    return Result.finding(check, severity, remedy, ref.component, **about)


def warning(check: str, ref: GpuRef, code: str, summary: str, **evidence: Scalar) -> Result:
    """Something to record and watch."""
    return finding(check, ref, code, Severity.WARNING, Remedy.NONE, summary, **evidence)


def absent(check: str, ref: GpuRef, reading: NvmlReading, what: str) -> Result:
    """A reading that is not there: SKIPPED where it is unsupported, else UNKNOWN."""
    if reading.unsupported:
        return skipped(check, ref, f"{what} is not supported by this GPU or driver")
    return _unknown(check, ref, f"{what}: {reading.error or 'not read'}")


def each(check: str, snapshot: Snapshot, judge: Callable[[GpuSnapshot], Result]) -> tuple[Result, ...]:
    """Judge every GPU; one that is lost or refused cannot be asked (``gpu.count`` reports it)."""
    return tuple(judge(gpu) if gpu.at_work else _not_asked(check, gpu) for gpu in snapshot.gpus)


def each_details(check: str, snapshot: Snapshot, judge: Callable[[GpuRef, GpuDetails], Result]) -> tuple[Result, ...]:
    """Judge the slow readings of every GPU."""

    def judge_one(gpu: GpuSnapshot) -> Result:
        if gpu.details is None:
            return _unknown(check, gpu.ref, "not read yet")
        return judge(gpu.ref, gpu.details)

    return each(check, snapshot, judge_one)


def each_change(
    check: str, change: SampleChange, judge: Callable[[GpuRef, GpuDetails, GpuDetails, float], Result]
) -> tuple[Result, ...]:
    """Judge the slow readings of every GPU against those before, and the seconds between the two.

    A GPU that is seen for the first time is OK: its counters are the baseline. Nothing new was read: no result."""
    now: Snapshot = change.now.facts.snapshot
    before: Snapshot | None = change.before.facts.snapshot if change.before is not None else None
    seconds = now.details_monotonic_s - before.details_monotonic_s if before is not None else 0.0
    if before is not None and seconds <= 0:
        return ()
    known = {gpu.ref.uuid: gpu.details for gpu in before.gpus} if before is not None else {}

    def judge_one(ref: GpuRef, details: GpuDetails) -> Result:
        earlier = known.get(ref.uuid)
        return ok(check, ref, "first reading") if earlier is None else judge(ref, earlier, details, seconds)

    return each_details(check, now, judge_one)


def risen(before: int | None, now: int | None) -> int:
    """By how much a counter rose; one that fell was set back (a driver reload), and is a new baseline."""
    return max(0, now - before) if before is not None and now is not None else 0


def _not_asked(check: str, gpu: GpuSnapshot) -> Result:
    why = "the GPU is lost" if gpu.lost else f"NVML refuses the GPU ({gpu.failed})"
    return _unknown(check, gpu.ref, why)


def _unknown(check: str, ref: GpuRef, why: str) -> Result:
    return Result.unknown(check, ref.component, **_of(ref, why))


def _of(ref: GpuRef, summary: str) -> ResultDetails:
    return {"summary": summary, "gpu_uuid": ref.uuid, "gpu_minor": ref.minor, "pci": ref.pci, "sticky": True}
