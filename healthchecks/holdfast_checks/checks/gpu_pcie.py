"""``gpu.pcie``: the GPU's PCIe link runs at its full width, and under load at its full speed.

An idle GPU lowers its speed to save power, so only a busy one is judged by it; the width never changes on a healthy link."""

from __future__ import annotations

from holdfast_checks.details import GpuDetails
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.per_gpu import GpuFacts, absent, details_check, each_details, finding, ok, warning
from holdfast_checks.registry import Threshold
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "gpu.pcie"
BUSY_PERCENT = 50
_MOST_LANES = 32
"""A device that fell off the bus reads as all ones: 63 lanes."""


def judge(facts: GpuFacts) -> tuple[Result, ...]:
    """Against the most that GPU and slot together can do."""
    return each_details(CHECK_ID, facts.snapshot, _judge_one)


def _judge_one(ref: GpuRef, details: GpuDetails) -> Result:
    width, full = details.pcie_width.value, details.pcie_width_max.value
    if width is None or full is None:
        reading = details.pcie_width if width is None else details.pcie_width_max
        return absent(CHECK_ID, ref, reading, "the PCIe link's width")
    if 0 < width < full <= _MOST_LANES:
        return finding(
            CHECK_ID,
            ref,
            "width",
            Severity.DEGRADED,
            Remedy.REBOOT,
            f"the PCIe link runs with {width} of {full} lanes",
            width=width,
            width_max=full,
        )
    return _judge_speed(ref, details)


def _judge_speed(ref: GpuRef, details: GpuDetails) -> Result:
    speed, full = details.pcie_gen.value, details.pcie_gen_max.value
    busy = details.utilisation_percent.value or 0
    if speed is None or full is None or busy < BUSY_PERCENT or speed >= full:
        return ok(CHECK_ID, ref)
    summary = f"the PCIe link runs at generation {speed} of {full} under load"
    return warning(CHECK_ID, ref, "speed", summary, generation=speed, generation_max=full, utilisation_percent=busy)


CHECK = details_check(
    CHECK_ID,
    "The PCIe link has its full width, and its full speed under load",
    judge,
    severity=Severity.DEGRADED,
    remedy=Remedy.REBOOT,
    thresholds=(
        Threshold("lanes missing", 1, "lanes", "OCI: 16 or the node is replaced"),
        Threshold("utilisation that counts as load", BUSY_PERCENT, "%", "ours: an idle link slows down to save power"),
    ),
)
