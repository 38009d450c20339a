"""``gpu.retired_pages``: pages of memory taken out of use, on parts from before Ampere. Later ones remap rows (``gpu.row_remap``)."""

from __future__ import annotations

from holdfast_checks.per_gpu import GpuFacts, absent, details_check, each, finding, ok, skipped, warning
from holdfast_checks.registry import Threshold
from holdfast_checks.result import Remedy, Result, Severity
from holdfast_checks.snapshot import GpuSnapshot

CHECK_ID = "gpu.retired_pages"
MOST = 62
DOUBLE_BIT = 15


def judge(facts: GpuFacts) -> tuple[Result, ...]:
    """Skipped on parts with row remap, where page limits mean nothing."""
    return each(CHECK_ID, facts.snapshot, _judge_one)


def _judge_one(gpu: GpuSnapshot) -> Result:
    if gpu.remap_pending.value is not None:
        return skipped(CHECK_ID, gpu.ref, "this GPU remaps rows instead")
    details = gpu.details
    if details is None:
        return absent(CHECK_ID, gpu.ref, gpu.remap_pending, "the count of retired pages")
    single, double = details.retired_single.value, details.retired_double.value
    if single is None or double is None:
        reading = details.retired_single if single is None else details.retired_double
        return absent(CHECK_ID, gpu.ref, reading, "the count of retired pages")
    evidence = {"single_bit": single, "double_bit": double}
    if single + double >= MOST:
        summary = f"{single + double} pages of memory are retired"
        return finding(CHECK_ID, gpu.ref, "count", Severity.DEGRADED, Remedy.REPLACE, summary, **evidence)
    if details.retired_pending.value:
        summary = "a page of memory is retired at the next reset"
        return finding(CHECK_ID, gpu.ref, "pending", Severity.DEGRADED, Remedy.RESET_GPU, summary, **evidence)
    if double >= DOUBLE_BIT:
        return warning(CHECK_ID, gpu.ref, "double_bit", f"{double} pages retired for double-bit errors", **evidence)
    return ok(CHECK_ID, gpu.ref)


CHECK = details_check(
    CHECK_ID,
    "Few pages of memory are retired",
    judge,
    severity=Severity.DEGRADED,
    remedy=Remedy.REPLACE,
    thresholds=(
        Threshold("retired pages", MOST, "pages", "AzNHC: 62; the table of a GPU holds 64"),
        Threshold("pages retired for double-bit errors: a warning", DOUBLE_BIT, "pages", "DCGM: soft limit 15"),
        Threshold("a page waits for a reset", 1, "flag", "GCM, awslabs: pending is bad"),
    ),
)
