"""``gpu.repair``: GPU memory that waits for a repair at boot, or that cannot be repaired (Blackwell, from R590 on)."""

from __future__ import annotations

from holdfast_checks.details import GpuDetails
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.per_gpu import GpuFacts, absent, details_check, each_details, finding, ok
from holdfast_checks.registry import Threshold
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "gpu.repair"


def judge(facts: GpuFacts) -> tuple[Result, ...]:
    """Memory that cannot be repaired is the worse one and is named alone."""
    return each_details(CHECK_ID, facts.snapshot, _judge_one)


def _judge_one(ref: GpuRef, details: GpuDetails) -> Result:
    if details.unrepairable_memory.value:
        summary = "memory that cannot be repaired"
        return finding(CHECK_ID, ref, "unrepairable", Severity.DEGRADED, Remedy.REPLACE, summary)
    channel, tpc = details.repair_channel, details.repair_tpc
    waiting = [name for name, reading in (("memory channel", channel), ("TPC", tpc)) if reading.value]
    if waiting:
        summary = f"{' and '.join(waiting)} repaired at the next boot"
        return finding(CHECK_ID, ref, "pending", Severity.DEGRADED, Remedy.REBOOT, summary)
    if channel.value is None and details.unrepairable_memory.value is None:
        return absent(CHECK_ID, ref, channel, "the repair state")
    return ok(CHECK_ID, ref)


CHECK = details_check(
    CHECK_ID,
    "No repair of a GPU is pending",
    judge,
    severity=Severity.DEGRADED,
    remedy=Remedy.REPLACE,
    thresholds=(Threshold("repair pending, memory unrepairable", 1, "flag", "AWS: reboot, replace"),),
)
