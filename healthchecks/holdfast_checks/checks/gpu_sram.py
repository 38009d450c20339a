"""``gpu.sram``: uncorrectable SRAM errors above NVIDIA's limit. There are no spare rows for SRAM."""

from __future__ import annotations

from holdfast_checks.details import GpuDetails
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.per_gpu import GpuFacts, absent, details_check, each_details, finding, ok, warning
from holdfast_checks.registry import Threshold
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "gpu.sram"


def judge(facts: GpuFacts) -> tuple[Result, ...]:
    """The driver's flag decides; below it an error in the GPU's lifetime is only reported."""
    return each_details(CHECK_ID, facts.snapshot, _judge_one)


def _judge_one(ref: GpuRef, details: GpuDetails) -> Result:
    exceeded, errors = details.sram_threshold.value, details.sram_uncorrected.value or 0
    if exceeded is None:
        return absent(CHECK_ID, ref, details.sram_threshold, "the SRAM threshold flag")
    if exceeded:
        summary = "more uncorrectable SRAM errors than NVIDIA allows"
        return finding(
            CHECK_ID, ref, "threshold", Severity.DEGRADED, Remedy.REPLACE, summary, uncorrected_aggregate=errors
        )
    if errors:
        summary = f"{errors} uncorrectable SRAM errors in the GPU's life"
        return warning(CHECK_ID, ref, "errors", summary, uncorrected_aggregate=errors)
    return ok(CHECK_ID, ref)


CHECK = details_check(
    CHECK_ID,
    "The SRAM threshold flag is not set",
    judge,
    severity=Severity.DEGRADED,
    remedy=Remedy.REPLACE,
    thresholds=(
        Threshold("SRAM threshold exceeded", 1, "flag", "NVIDIA's RMA rule; DCGM 4.6, AWS: replace"),
        Threshold("uncorrectable SRAM errors: a warning", 1, "errors", "AzNHC: any"),
    ),
)
