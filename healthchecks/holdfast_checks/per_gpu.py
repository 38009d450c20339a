"""Helpers for checks that judge one reading of every GPU."""

from __future__ import annotations

from collections.abc import Callable

from holdfast_checks.inventory import GpuRef
from holdfast_checks.result import Remedy, Result, Scalar, Severity, Verdict
from holdfast_checks.snapshot import GpuSnapshot, Reading, Snapshot


def ok(check: str, ref: GpuRef, summary: str = "") -> Result:
    """A GPU that passed."""
    return _result(check, ref, Verdict.OK, summary)


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
    verdict = Verdict.FAILED if severity is Severity.FATAL else Verdict.DEGRADED
    return Result(
        check,
        verdict,
        component=ref.component,
        code=code,
        severity=severity,
        remedy=remedy,
        summary=summary,
        evidence=evidence,
        gpu_uuid=ref.uuid,
        gpu_minor=ref.minor,
        pci=ref.pci,
        sticky=True,
    )


def absent(check: str, ref: GpuRef, reading: Reading, what: str) -> Result:
    """A reading that is not there: SKIPPED where it is unsupported, else UNKNOWN."""
    if reading.unsupported:
        return _result(check, ref, Verdict.SKIPPED, f"{what} is not supported by this GPU or driver")
    return _result(check, ref, Verdict.UNKNOWN, f"{what}: {reading.error or 'not read'}")


def each(check: str, snapshot: Snapshot, judge: Callable[[GpuSnapshot], Result]) -> tuple[Result, ...]:
    """Judge every GPU; a lost one cannot be asked (``gpu.count`` reports it)."""
    return tuple(
        _result(check, gpu.ref, Verdict.UNKNOWN, "the GPU is lost") if gpu.lost else judge(gpu) for gpu in snapshot.gpus
    )


def _result(check: str, ref: GpuRef, verdict: Verdict, summary: str) -> Result:
    return Result(
        check,
        verdict,
        component=ref.component,
        summary=summary,
        gpu_uuid=ref.uuid,
        gpu_minor=ref.minor,
        pci=ref.pci,
        sticky=True,
    )
