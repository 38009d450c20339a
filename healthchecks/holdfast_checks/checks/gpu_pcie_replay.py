"""``gpu.pcie_replay``: rate of PCIe replays (packets sent again)."""

from __future__ import annotations

from holdfast_checks.details import GpuDetails
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.per_gpu import absent, details_check, each_change, ok, risen, warning
from holdfast_checks.registry import SampleChange, Threshold
from holdfast_checks.result import Result, Severity

CHECK_ID = "gpu.pcie_replay"
PER_LANE_AND_MINUTE = {1: 0.15, 2: 0.3, 3: 0.48, 4: 0.96, 5: 1.92, 6: 3.84}
"""Replays that the specification's bit error rate of 1e-12 allows, by generation."""
_LANES = 16


def judge(change: SampleChange) -> tuple[Result, ...]:
    """Against the rate that is normal for the link's generation and width."""
    return each_change(CHECK_ID, change, _judge_one)


def _judge_one(ref: GpuRef, before: GpuDetails, now: GpuDetails, seconds: float) -> Result:
    if now.pcie_replays.value is None:
        return absent(CHECK_ID, ref, now.pcie_replays, "the count of PCIe replays")
    newest = max(PER_LANE_AND_MINUTE)
    generation = min(now.pcie_gen_max.value or newest, newest)
    limit = PER_LANE_AND_MINUTE.get(generation, PER_LANE_AND_MINUTE[newest]) * (now.pcie_width.value or _LANES)
    replays = risen(before.pcie_replays.value, now.pcie_replays.value)
    per_min = replays * 60 / seconds
    if per_min <= limit:
        return ok(CHECK_ID, ref)
    summary = f"{replays} PCIe replays in {seconds:.0f} s, normal are {limit:.1f} a minute"
    return warning(
        CHECK_ID, ref, "rate", summary, replays=replays, seconds=round(seconds), limit_per_min=round(limit, 2)
    )


CHECK = details_check(
    CHECK_ID,
    "The PCIe link repeats few packets",
    judge,
    severity=Severity.WARNING,
    thresholds=tuple(
        Threshold(f"replays of one lane, generation {generation}", limit, "replays/min", "DCGM health")
        for generation, limit in PER_LANE_AND_MINUTE.items()
    ),
    compares=True,
)
