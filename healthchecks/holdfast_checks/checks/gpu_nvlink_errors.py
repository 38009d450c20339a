"""``gpu.nvlink_errors``: rising error counters of an NVLink. Per link, never as a sum: one link that recovered 505 times, all
others at 0, announced its failure by five days (marin-community#8934)."""

from __future__ import annotations

from holdfast_checks.details import GpuDetails, NvLink
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.per_gpu import GpuFacts, absent, details_check, each_change, finding, ok, risen, warning
from holdfast_checks.registry import SampleChange, Threshold
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "gpu.nvlink_errors"
CRC_PER_S = 100.0
RECOVERIES_PER_MIN = 5.0
ANY = 1


def judge(change: SampleChange) -> tuple[Result, ...]:
    """One result a GPU, of its worst link."""
    now: GpuFacts = change.now.facts
    limit = now.settings.gpu.nvlink_recoveries_per_min

    def judge_one(ref: GpuRef, before: GpuDetails, details: GpuDetails, seconds: float) -> Result:
        if details.link_count.value is None:
            return absent(CHECK_ID, ref, details.link_count, "NVLink")
        if len(before.links) != len(details.links):
            return ok(CHECK_ID, ref, "first reading")
        return _judge_gpu(ref, _risen(before, details), seconds, limit)

    return each_change(CHECK_ID, change, judge_one)


def _risen(before: GpuDetails, now: GpuDetails) -> list[NvLink]:
    """By how much each counter of each link rose."""
    return [
        NvLink(
            active=link.active,
            replays=risen(earlier.replays, link.replays),
            recoveries=risen(earlier.recoveries, link.recoveries),
            crc_errors=risen(earlier.crc_errors, link.crc_errors),
            failed_recoveries=risen(earlier.failed_recoveries, link.failed_recoveries),
            integrity_errors=risen(earlier.integrity_errors, link.integrity_errors),
        )
        for earlier, link in zip(before.links, now.links, strict=True)
    ]


def _judge_gpu(ref: GpuRef, links: list[NvLink], seconds: float, recoveries_per_min: float) -> Result:
    for code, counter, limit in (
        ("recovery_failed", "failed_recoveries", ANY),
        ("crc", "crc_errors", CRC_PER_S * seconds),
        ("recoveries", "recoveries", recoveries_per_min * seconds / 60),
    ):
        if bad := _over(links, counter, limit):
            summary = f"NVLink {_names(bad)}: {_words(bad, counter)} in {seconds:.0f} s"
            evidence = _evidence(bad, counter, seconds)
            return finding(CHECK_ID, ref, code, Severity.DEGRADED, Remedy.RESET_GPU, summary, **evidence)
    for code, counter in (("recovery", "recoveries"), ("replay", "replays"), ("integrity", "integrity_errors")):
        if bad := _over(links, counter, ANY):
            summary = f"NVLink {_names(bad)}: {_words(bad, counter)} in {seconds:.0f} s"
            return warning(CHECK_ID, ref, code, summary, **_evidence(bad, counter, seconds))
    return ok(CHECK_ID, ref)


def _over(links: list[NvLink], counter: str, limit: float) -> dict[int, int]:
    """Link → by how much its counter rose, of those at or above the limit."""
    rises = {number: getattr(link, counter) for number, link in enumerate(links)}
    return {number: rise for number, rise in rises.items() if rise >= max(ANY, limit)}


def _names(bad: dict[int, int]) -> str:
    return ",".join(map(str, bad))


def _words(bad: dict[int, int], counter: str) -> str:
    return f"{max(bad.values())} {counter.replace('_', ' ')}"


def _evidence(bad: dict[int, int], counter: str, seconds: float) -> dict[str, int | str]:
    return {"links": _names(bad), counter: max(bad.values()), "seconds": round(seconds)}


CHECK = details_check(
    CHECK_ID,
    "No NVLink makes errors",
    judge,
    severity=Severity.DEGRADED,
    remedy=Remedy.RESET_GPU,
    thresholds=(
        Threshold("CRC errors of one link", CRC_PER_S, "errors/s", "DCGM health: NVLink CRC"),
        Threshold(
            "recoveries of one link", RECOVERIES_PER_MIN, "recoveries/min", "marin-community#8934: 505, others 0"
        ),
        Threshold("any recovery or replay: a warning", ANY, "errors", "DCGM health, GCM: any"),
        Threshold("failed recoveries (NVLink 5)", ANY, "events", "the link is down after it"),
    ),
    compares=True,
)
