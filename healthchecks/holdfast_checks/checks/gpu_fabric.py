"""``gpu.fabric``: the GPU has joined its NVSwitch fabric, and is healthy there. Catches a fabric manager that is down while
everything else looks well (NVSentinel#883: 20 days)."""

from __future__ import annotations

from holdfast_checks.details import GpuDetails
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.per_gpu import GpuFacts, absent, details_check, each_details, finding, ok, skipped, warning
from holdfast_checks.registry import Threshold
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "gpu.fabric"
NOT_SUPPORTED, COMPLETED = 0, 3
_STATES = {1: "has not started to join the fabric", 2: "is still joining the fabric"}

_BAD = 1
_TWO_BITS = {"bandwidth is degraded": 0, "routes are unhealthy": 4, "recovery from an access time-out is needed": 6}
"""What is wrong when a two-bit field of the health mask is 1, by its shift. (2: fine, 0: not supported.)"""
_RECOVERING_SHIFT = 2
_CONFIGURATION_SHIFT, _CONFIGURATION_MASK, _CONFIGURATION_NONE = 8, 0xF, 1
"""Four bits wide, and 1 is the good value: the one field where "1 = fault" is wrong."""
_CONFIGURATION = {
    2: "wrong system GUID",
    3: "wrong chassis serial number",
    4: "no partition",
    5: "too few NVLinks",
    6: "incompatible GPU firmware",
    7: "invalid location",
    8: "invalid GPU state",
}
RUNS = 3


def judge(facts: GpuFacts) -> tuple[Result, ...]:
    """State first, then the status of the registration, then the mask."""
    return each_details(CHECK_ID, facts.snapshot, _judge_one)


def _judge_one(ref: GpuRef, details: GpuDetails) -> Result:
    state, status = details.fabric_state.value, details.fabric_status.value
    if state is None or status is None:
        return absent(CHECK_ID, ref, details.fabric_state, "the fabric's state")
    if state == NOT_SUPPORTED:
        return skipped(CHECK_ID, ref, "this GPU has no fabric")
    if state in _STATES:
        return _degraded(ref, "not_ready", f"the GPU {_STATES[state]}", Remedy.REBOOT, details)
    if state != COMPLETED:
        return warning(CHECK_ID, ref, "unknown_state", f"unknown fabric state {state}", fabric_state=state)
    if status != 0:
        return _degraded(ref, "status", f"joining the fabric ended with NVML code {status}", Remedy.RESET_GPU, details)
    return _judge_mask(ref, details)


def _judge_mask(ref: GpuRef, details: GpuDetails) -> Result:
    mask = details.fabric_health.value
    if mask is None and not details.fabric_health.unsupported:
        return absent(CHECK_ID, ref, details.fabric_health, "the fabric's health")
    mask = mask or 0
    words = [text for text, shift in _TWO_BITS.items() if mask >> shift & 3 == _BAD]
    if words:
        return _degraded(ref, "unhealthy", f"fabric: {', '.join(words)}", Remedy.RESET_GPU, details)
    configuration = mask >> _CONFIGURATION_SHIFT & _CONFIGURATION_MASK
    if configuration > _CONFIGURATION_NONE:
        text = _CONFIGURATION.get(configuration, f"code {configuration}")
        return _degraded(ref, "configuration", f"fabric configuration: {text}", Remedy.HUMAN, details)
    if mask >> _RECOVERING_SHIFT & 3 == _BAD:
        return warning(CHECK_ID, ref, "recovering", "fabric: routes are being recovered", health_mask=f"{mask:#x}")
    return ok(CHECK_ID, ref)


def _degraded(ref: GpuRef, code: str, summary: str, remedy: Remedy, details: GpuDetails) -> Result:
    return finding(
        CHECK_ID,
        ref,
        code,
        Severity.DEGRADED,
        remedy,
        summary,
        fabric_state=details.fabric_state.value or 0,
        fabric_status=details.fabric_status.value or 0,
        health_mask=f"{details.fabric_health.value or 0:#x}",
    )


CHECK = details_check(
    CHECK_ID,
    "The GPU has joined a healthy NVSwitch fabric",
    judge,
    severity=Severity.DEGRADED,
    remedy=Remedy.REBOOT,
    thresholds=(Threshold("bad readings in a row", RUNS, "readings", "ours: joining takes a while after a boot"),),
    hysteresis=(RUNS, RUNS),
)
