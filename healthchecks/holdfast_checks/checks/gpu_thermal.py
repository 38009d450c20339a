"""``gpu.thermal``: the hardware slows a GPU down because of heat. (Because of power: ``gpu.power``.)

Remedy none: drain, wait until it has cooled; the state clears itself."""

from __future__ import annotations

from holdfast_checks.per_gpu import absent, each, finding, ok
from holdfast_checks.registry import Check, Cost, Need, Threshold, snapshot_of
from holdfast_checks.result import Remedy, Result, Severity
from holdfast_checks.snapshot import GpuSnapshot, Snapshot

CHECK_ID = "gpu.thermal"

HARDWARE_SLOWDOWN, HARDWARE_THERMAL, POWER_BRAKE = 0x08, 0x40, 0x80
"""Bits of NVML's clock event reasons. The first is set together with either of the others."""
SOFTWARE_THERMAL = 0x20
K, N = 24, 40


def judge(snapshot: Snapshot) -> tuple[Result, ...]:
    """One sample a GPU; whether it lasts is the caller's hysteresis."""
    return each(CHECK_ID, snapshot, _judge_one)


def _judge_one(gpu: GpuSnapshot) -> Result:
    reasons = gpu.clock_event_reasons.value
    if reasons is None:
        return absent(CHECK_ID, gpu.ref, gpu.clock_event_reasons, "why clocks are low")
    evidence = {"clock_event_reasons": f"{reasons:#x}"}
    if gpu.temperature_c.value is not None:
        evidence["temperature_c"] = str(gpu.temperature_c.value)
    braked = reasons & POWER_BRAKE and not reasons & HARDWARE_THERMAL
    if reasons & (HARDWARE_SLOWDOWN | HARDWARE_THERMAL) and not braked:
        why = "by the hardware because of heat" if reasons & HARDWARE_THERMAL else "by the hardware"
        return finding(
            CHECK_ID,
            gpu.ref,
            "slowdown",
            Severity.DEGRADED,
            Remedy.NONE,
            f"slowed down {why}",
            **evidence,
        )
    if reasons & SOFTWARE_THERMAL:
        summary = "slowed down by the driver because of heat"
        return finding(CHECK_ID, gpu.ref, "warm", Severity.WARNING, Remedy.NONE, summary, **evidence)
    return ok(CHECK_ID, gpu.ref)


CHECK = Check(
    id=CHECK_ID,
    title="No GPU is slowed down by heat",
    needs=frozenset({Need.NVML}),
    interval_s=15,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.NONE,
    gather=snapshot_of,
    judge=judge,
    observe=False,
    thresholds=(Threshold("samples slowed down in 10 minutes", K / N, "share", "gpud: 0.6 a minute over 10 minutes"),),
    hysteresis=(K, N),
)
