"""``gpu.ecc``: uncorrectable memory errors since the last reset.

Degraded and not fatal: a contained error (Xid 94) counts here too and affects only the job that used the memory.
Worse errors are reported on their own (Xid 48, 95, 140, the recovery action)."""

from __future__ import annotations

from holdfast_checks.per_gpu import absent, each, finding, ok
from holdfast_checks.registry import Check, Cost, Need, Threshold, snapshot_of
from holdfast_checks.result import Remedy, Result, Severity
from holdfast_checks.snapshot import GpuSnapshot, Snapshot

CHECK_ID = "gpu.ecc"
LIMIT = 0


def judge(snapshot: Snapshot) -> tuple[Result, ...]:
    """One result a GPU."""
    return each(CHECK_ID, snapshot, _judge_one)


def _judge_one(gpu: GpuSnapshot) -> Result:
    errors = gpu.ecc_uncorrected_volatile.value
    if errors is None:
        return absent(CHECK_ID, gpu.ref, gpu.ecc_uncorrected_volatile, "the count of uncorrectable errors")
    if errors <= LIMIT:
        return ok(CHECK_ID, gpu.ref)
    summary = f"{errors} uncorrectable memory errors since the last reset"
    return finding(
        CHECK_ID, gpu.ref, "uncorrectable", Severity.DEGRADED, Remedy.RESET_GPU, summary, uncorrected_volatile=errors
    )


CHECK = Check(
    id=CHECK_ID,
    title="No uncorrectable memory errors",
    needs=frozenset({Need.NVML}),
    interval_s=15,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.RESET_GPU,
    gather=snapshot_of,
    judge=judge,
    observe=False,
    thresholds=(Threshold("uncorrectable errors, volatile", LIMIT, "errors", "GCM, imbue, awslabs: any is bad"),),
)
