"""``gpu.ecc_mode``: ECC is on. Without it a GPU computes wrong numbers and no error is reported."""

from __future__ import annotations

from holdfast_checks.details import GpuDetails
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.per_gpu import GpuFacts, absent, details_check, each_details, ok, warning
from holdfast_checks.result import Result, Severity

CHECK_ID = "gpu.ecc_mode"


def judge(facts: GpuFacts) -> tuple[Result, ...]:
    """A warning: a person switched it off, and the reset after switching it on is an operator's decision."""
    wanted = facts.settings.gpu.ecc_mode

    def judge_one(ref: GpuRef, details: GpuDetails) -> Result:
        mode, pending = details.ecc_mode.value, details.ecc_mode_pending.value
        if mode is None:
            return absent(CHECK_ID, ref, details.ecc_mode, "ECC")
        if wanted and not mode:
            return warning(CHECK_ID, ref, "off", "ECC is off", pending=pending or 0)
        if wanted and pending == 0:
            return warning(CHECK_ID, ref, "pending", "ECC will be off after the next reset")
        return ok(CHECK_ID, ref)

    return each_details(CHECK_ID, facts.snapshot, judge_one)


CHECK = details_check(CHECK_ID, "ECC is on", judge, severity=Severity.WARNING)
