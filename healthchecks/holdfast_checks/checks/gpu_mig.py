"""``gpu.mig``: MIG mode is as configured. A GPU split into instances is not what Slurm gives to jobs."""

from __future__ import annotations

from holdfast_checks.details import GpuDetails
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.per_gpu import GpuFacts, absent, details_check, each_details, ok, warning
from holdfast_checks.result import Result, Severity

CHECK_ID = "gpu.mig"
_WORDS = {True: "on", False: "off"}


def judge(facts: GpuFacts) -> tuple[Result, ...]:
    """Against the site's setting; a change that waits for a reset is reported too."""
    wanted = facts.settings.gpu.mig_mode

    def judge_one(ref: GpuRef, details: GpuDetails) -> Result:
        mode, pending = details.mig.value, details.mig_pending.value
        if mode is None:
            return absent(CHECK_ID, ref, details.mig, "MIG")
        if bool(mode) != wanted:
            return warning(CHECK_ID, ref, _WORDS[bool(mode)], f"MIG is {_WORDS[bool(mode)]}, expected {_WORDS[wanted]}")
        if pending is not None and pending != mode:
            return warning(CHECK_ID, ref, "pending", f"MIG will be {_WORDS[bool(pending)]} after the next reset")
        return ok(CHECK_ID, ref)

    return each_details(CHECK_ID, facts.snapshot, judge_one)


CHECK = details_check(CHECK_ID, "MIG is as the site has it", judge, severity=Severity.WARNING)
