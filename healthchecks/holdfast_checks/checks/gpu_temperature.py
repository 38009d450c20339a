"""``gpu.temperature``: margin to the temperature at which the hardware slows the GPU down."""

from __future__ import annotations

from holdfast_checks.details import GpuDetails
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.per_gpu import GpuFacts, absent, details_check, each_details, ok, warning
from holdfast_checks.registry import Threshold
from holdfast_checks.result import Result, Severity

CHECK_ID = "gpu.temperature"
MARGIN_C = 3


def judge(facts: GpuFacts) -> tuple[Result, ...]:
    """By the margin that the driver reports, never by a fixed temperature: parts differ."""
    least = facts.settings.gpu.temperature_margin_c

    def judge_one(ref: GpuRef, details: GpuDetails) -> Result:
        margin = details.temperature_margin_c.value
        if margin is None:
            return absent(CHECK_ID, ref, details.temperature_margin_c, "the temperature margin")
        if margin >= least:
            return ok(CHECK_ID, ref)
        summary = f"{margin} degrees are left until the hardware slows down"
        return warning(CHECK_ID, ref, "margin", summary, margin_c=margin)

    return each_details(CHECK_ID, facts.snapshot, judge_one)


CHECK = details_check(
    CHECK_ID,
    "The GPU is cooler than its slowdown temperature by a margin",
    judge,
    severity=Severity.WARNING,
    thresholds=(Threshold("margin", MARGIN_C, "degrees C", "ours; NVSentinel and gpud watch it without acting"),),
)
