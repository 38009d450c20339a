"""Facts about GPUs for the tables of judges: healthy except for the given values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast_checks.details import COUNTERS, GpuDetails, NvLink
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.known import all_checks
from holdfast_checks.per_gpu import GpuFacts
from holdfast_checks.registry import Sample, SampleChange
from holdfast_checks.result import Result
from holdfast_checks.settings import CheckSettings
from holdfast_checks.snapshot import GpuSnapshot, NvmlReading, Snapshot

Short = tuple[str, str, str | None, str]
OK: Short = ("ok", "", None, "none")
SKIPPED: Short = ("skipped", "", None, "none")
UNKNOWN: Short = ("unknown", "", None, "none")
NO = NvmlReading(unsupported=True)
ERROR = NvmlReading(error="Timeout (10)")


def warning(code: str) -> Short:
    return ("degraded", code, "warning", "none")


def degraded(code: str, remedy: str) -> Short:
    return ("degraded", code, "degraded", remedy)


def ref(index: int) -> GpuRef:
    return GpuRef(uuid=f"GPU-{index}", minor=index, pci=f"0000:{index:02x}:00.0", index=index)


def links(up: int = 18, /, **counters: dict[int, int]) -> tuple[NvLink, ...]:
    """18 links, the first ``up`` of them active; counters by name as {link: count}."""
    return tuple(
        NvLink(active=number < up, **{name: counters.get(name, {}).get(number, 0) for name in COUNTERS})
        for number in range(18)
    )


HEALTHY: dict[str, Any] = {
    **dict.fromkeys(
        (name for name, field in GpuDetails.__dataclass_fields__.items() if isinstance(field.default, NvmlReading)),
        NvmlReading(0),
    ),
    "name": "H100",
    "vbios": "1",
    "links": links(),
    "link_count": NvmlReading(18),
    "fabric_state": NvmlReading(3),
    "fabric_health": NvmlReading(0x1AA),
    "pcie_gen": NvmlReading(5),
    "pcie_gen_max": NvmlReading(5),
    "pcie_width": NvmlReading(16),
    "pcie_width_max": NvmlReading(16),
    "temperature_margin_c": NvmlReading(40),
    "persistence": NvmlReading(1),
    "ecc_mode": NvmlReading(1),
    "ecc_mode_pending": NvmlReading(1),
    "banks_max": NvmlReading(640),
    "retired_single": NO,
    "retired_double": NO,
    "retired_pending": NO,
    "power_limit_mw": NvmlReading(700_000),
}
FAST = ("temperature_c", "clock_event_reasons", "ecc_corrected_volatile", "ecc_uncorrected_volatile")
REMAP = ("remap_corrected", "remap_uncorrected", "remap_pending", "remap_failed")


def gpu(index: int = 0, **given: Any) -> GpuSnapshot:
    """Healthy except for the given values; numbers are readings."""
    values = {name: NvmlReading(value) if isinstance(value, int) else value for name, value in given.items()}
    fast: dict[str, Any] = {name: values.pop(name, NvmlReading(0)) for name in (*FAST, *REMAP, "recovery_action")}
    return replace(GpuSnapshot(ref(index), details=GpuDetails(**{**HEALTHY, **values})), **fast)


def facts(*gpus: GpuSnapshot, seconds: float = 60.0, **settings: Any) -> GpuFacts:
    snapshot = Snapshot("580", "13", len(gpus), gpus, seconds, details_monotonic_s=seconds)
    return GpuFacts(snapshot, CheckSettings(**settings))


def judge(check: str, now: GpuFacts, before: GpuFacts | None = None) -> tuple[Result, ...]:
    found = all_checks()[check]
    if not found.compares:
        return found.judge(now)
    return found.judge(SampleChange(Sample(before, 0.0) if before is not None else None, Sample(now, 60.0)))


def short(result: Result) -> Short:
    return (result.verdict, result.code, result.severity, result.remedy)
