"""``gpu.power``: power brake: something outside the GPU (a power supply, the rack) slows it down.

Remedy none: drain, wait until the power is back; the state clears itself."""

from __future__ import annotations

from holdfast_checks.per_gpu import absent, each, finding, ok
from holdfast_checks.registry import Check, Cost, Need, Threshold, snapshot_of
from holdfast_checks.result import Remedy, Result, Severity
from holdfast_checks.snapshot import GpuSnapshot, Snapshot

CHECK_ID = "gpu.power"
POWER_BRAKE = 0x80
"""nvmlClocksEventReasonHwPowerBrakeSlowdown"""
K, N = 24, 40


def judge(snapshot: Snapshot) -> tuple[Result, ...]:
    """One sample a GPU; whether it lasts is the caller's hysteresis."""
    return each(CHECK_ID, snapshot, _judge_one)


def _judge_one(gpu: GpuSnapshot) -> Result:
    reasons = gpu.clock_event_reasons.value
    if reasons is None:
        return absent(CHECK_ID, gpu.ref, gpu.clock_event_reasons, "why clocks are low")
    if not reasons & POWER_BRAKE:
        return ok(CHECK_ID, gpu.ref)
    power = gpu.details.power_mw.value if gpu.details is not None else None
    return finding(
        CHECK_ID,
        gpu.ref,
        "power_brake",
        Severity.DEGRADED,
        Remedy.NONE,
        "slowed down by an external power brake",
        clock_event_reasons=f"{reasons:#x}",
        power_mw=power or 0,
    )


CHECK = Check(
    id=CHECK_ID,
    title="No external power brake slows a GPU down",
    needs=frozenset({Need.NVML}),
    interval_s=15,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.NONE,
    gather=snapshot_of,
    judge=judge,
    thresholds=(Threshold("samples braked in 10 minutes", K / N, "share", "gpud: 0.6 a minute over 10 minutes"),),
    hysteresis=(K, N),
)
