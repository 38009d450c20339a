"""``gpu.memory_banks``: spare rows left in each bank of memory. Banks that run low are an early sign of a remap that will
fail (Xid 64, 157)."""

from __future__ import annotations

from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.per_gpu import GpuFacts, absent, details_check, each, finding, ok, warning
from holdfast_checks.registry import Threshold
from holdfast_checks.result import Remedy, Result, Severity
from holdfast_checks.snapshot import GpuSnapshot

CHECK_ID = "gpu.memory_banks"
MOST_ROWS = 512


def judge(facts: GpuFacts) -> tuple[Result, ...]:
    """Warnings, until every row that can be remapped has been."""
    return each(CHECK_ID, facts.snapshot, _judge_one)


def _judge_one(gpu: GpuSnapshot) -> Result:
    rows = gpu.remap_uncorrected.value or 0
    if rows >= MOST_ROWS:
        summary = f"{rows} rows of memory are remapped after uncorrectable errors"
        return finding(CHECK_ID, gpu.ref, "rows", Severity.DEGRADED, Remedy.REPLACE, summary, remap_uncorrected=rows)
    if gpu.details is None:
        return absent(CHECK_ID, gpu.ref, gpu.remap_uncorrected, "the spare rows")
    low, none = gpu.details.banks_low, gpu.details.banks_none
    if low.value is None or none.value is None:
        return absent(CHECK_ID, gpu.ref, low if low.value is None else none, "the spare rows")
    return _judge_banks(gpu.ref, low.value, none.value)


def _judge_banks(ref: GpuRef, low: int, none: int) -> Result:
    if none:
        return warning(CHECK_ID, ref, "none", f"{none} banks of memory have no spare row left", banks_none=none)
    if low:
        return warning(CHECK_ID, ref, "low", f"{low} banks of memory have few spare rows left", banks_low=low)
    return ok(CHECK_ID, ref)


CHECK = details_check(
    CHECK_ID,
    "Every bank of memory has spare rows",
    judge,
    severity=Severity.DEGRADED,
    remedy=Remedy.REPLACE,
    thresholds=(
        Threshold("rows remapped after uncorrectable errors", MOST_ROWS, "rows", "DCGM, AzNHC: 512"),
        Threshold("banks with few or no spare rows: a warning", 1, "banks", "NVIDIA: drift from Max to Low"),
    ),
)
