"""``gpu.row_remap``: rows of memory that wait to be remapped, or could not be. The state decides, not Xid 63."""

from __future__ import annotations

from holdfast_checks.per_gpu import absent, each, finding, ok
from holdfast_checks.registry import Check, Cost, Need, snapshot_of
from holdfast_checks.result import Remedy, Result, Severity
from holdfast_checks.snapshot import GpuSnapshot, Snapshot

CHECK_ID = "gpu.row_remap"


def judge(snapshot: Snapshot) -> tuple[Result, ...]:
    """A failed remap is the worse one and is named alone."""
    return each(CHECK_ID, snapshot, _judge_one)


def _judge_one(gpu: GpuSnapshot) -> Result:
    pending, failed = gpu.remap_pending.value, gpu.remap_failed.value
    evidence = {
        "remap_corrected": gpu.remap_corrected.value or 0,
        "remap_uncorrected": gpu.remap_uncorrected.value or 0,
    }
    if failed:
        summary = "a row of memory could not be remapped: no spare row is left"
        return finding(CHECK_ID, gpu.ref, "failed", Severity.FATAL, Remedy.REPLACE, summary, **evidence)
    if pending:
        summary = "a row of memory is remapped at the next reset"
        return finding(CHECK_ID, gpu.ref, "pending", Severity.DEGRADED, Remedy.RESET_GPU, summary, **evidence)
    if pending is None or failed is None:
        reading = gpu.remap_pending if pending is None else gpu.remap_failed
        return absent(CHECK_ID, gpu.ref, reading, "the row-remap state")
    return ok(CHECK_ID, gpu.ref)


CHECK = Check(
    id=CHECK_ID,
    title="No row remap is pending or failed",
    needs=frozenset({Need.NVML}),
    interval_s=15,
    cost=Cost.PASSIVE,
    severity=Severity.FATAL,
    remedy=Remedy.REPLACE,
    gather=snapshot_of,
    judge=judge,
    observe=False,
)
