"""``gpu.persistence``: persistence mode is on. Without it the driver unloads a GPU that no process uses, and its counters are lost."""

from __future__ import annotations

from holdfast_checks.details import GpuDetails
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.per_gpu import GpuFacts, absent, details_check, each_details, ok, warning
from holdfast_checks.result import Result, Severity

CHECK_ID = "gpu.persistence"


def judge(facts: GpuFacts) -> tuple[Result, ...]:
    """A warning: no job is affected."""
    wanted = facts.settings.gpu.persistence_mode

    def judge_one(ref: GpuRef, details: GpuDetails) -> Result:
        mode = details.persistence.value
        if mode is None:
            return absent(CHECK_ID, ref, details.persistence, "persistence mode")
        if mode or not wanted:
            return ok(CHECK_ID, ref)
        return warning(CHECK_ID, ref, "off", "persistence mode is off")

    return each_details(CHECK_ID, facts.snapshot, judge_one)


CHECK = details_check(CHECK_ID, "Persistence mode is on", judge, severity=Severity.WARNING)
