"""``gpu.ecc_corrected``: corrected memory errors. Each one is harmless; a flood slows the GPU and blocks the driver
(DCGM#313: more than 4000 a second, calls took 45 s)."""

from __future__ import annotations

from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.per_gpu import absent, details_check, each, ok, risen, warning
from holdfast_checks.registry import SampleChange, Threshold
from holdfast_checks.result import Result, Severity
from holdfast_checks.snapshot import GpuSnapshot, Snapshot

CHECK_ID = "gpu.ecc_corrected"
MOST = 20_000_000
STORM_PER_S = 1000


def judge(change: SampleChange) -> tuple[Result, ...]:
    """The count since the last reset, and how fast it grows."""
    now: Snapshot = change.now.facts.snapshot
    before: Snapshot | None = change.before.facts.snapshot if change.before is not None else None
    known = {gpu.ref.uuid: gpu for gpu in before.gpus} if before is not None else {}
    seconds = now.monotonic_s - before.monotonic_s if before is not None else 0.0

    def judge_one(gpu: GpuSnapshot) -> Result:
        errors, earlier = gpu.ecc_corrected_volatile.value, known.get(gpu.ref.uuid)
        if errors is None:
            return absent(CHECK_ID, gpu.ref, gpu.ecc_corrected_volatile, "the count of corrected errors")
        rise = risen(earlier.ecc_corrected_volatile.value, errors) if earlier is not None else 0
        return _judge_one(gpu.ref, errors, rise / seconds if seconds > 0 else 0.0)

    return each(CHECK_ID, now, judge_one)


def _judge_one(ref: GpuRef, errors: int, per_s: float) -> Result:
    if per_s >= STORM_PER_S:
        summary = f"{per_s:.0f} corrected memory errors a second"
        return warning(CHECK_ID, ref, "storm", summary, per_s=round(per_s), corrected_volatile=errors)
    if errors > MOST:
        summary = f"{errors} corrected memory errors since the last reset"
        return warning(CHECK_ID, ref, "count", summary, corrected_volatile=errors)
    return ok(CHECK_ID, ref)


CHECK = details_check(
    CHECK_ID,
    "Few corrected memory errors",
    judge,
    severity=Severity.WARNING,
    thresholds=(
        Threshold("corrected errors, volatile", MOST, "errors", "AzNHC (DRAM); GCM has 50,000,000"),
        Threshold("corrected errors, rate", STORM_PER_S, "errors/s", "DCGM#313: the driver blocks above 4000"),
    ),
    compares=True,
)
