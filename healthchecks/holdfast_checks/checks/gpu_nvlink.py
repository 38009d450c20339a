"""``gpu.nvlink``: every NVLink of every GPU is up.

How many must be: the site's setting, else the instance type's, else as many as the best GPU of the same name on this node has, so
that parts without a bridge or without NVSwitch (all links inactive) are no fault."""

from __future__ import annotations

from holdfast_checks.catalog.instance_types import lookup
from holdfast_checks.details import GpuDetails
from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.per_gpu import GpuFacts, absent, details_check, each_details, finding, ok, skipped
from holdfast_checks.registry import Threshold
from holdfast_checks.result import Remedy, Result, Severity

CHECK_ID = "gpu.nvlink"


def judge(facts: GpuFacts) -> tuple[Result, ...]:
    """One result a GPU, naming its links that are down."""
    told = _told(facts)
    best: dict[str, int] = {}
    for gpu in facts.snapshot.gpus:
        if gpu.details is not None:
            best[gpu.details.name] = max(best.get(gpu.details.name, 0), _active(gpu.details))

    def judge_one(ref: GpuRef, details: GpuDetails) -> Result:
        return _judge_one(ref, details, told or best[details.name])

    return each_details(CHECK_ID, facts.snapshot, judge_one)


def _told(facts: GpuFacts) -> int:
    known = lookup(facts.settings.instance_type)
    return facts.settings.gpu.nvlinks or (known.nvlinks if known is not None else 0)


def _active(details: GpuDetails) -> int:
    return sum(link.active is True for link in details.links)


def _judge_one(ref: GpuRef, details: GpuDetails, expected: int) -> Result:
    if details.link_count.value is None:
        return absent(CHECK_ID, ref, details.link_count, "NVLink")
    if not expected:
        return skipped(CHECK_ID, ref, "no NVLink is in use on this node")
    down = [number for number, link in enumerate(details.links) if link.active is False]
    active = _active(details)
    unknown = sum(link.active is None for link in details.links)
    if active >= expected:
        return ok(CHECK_ID, ref, f"{active} links")
    if active + unknown >= expected:
        return absent(CHECK_ID, ref, details.link_count, f"{unknown} links could not be asked")
    names = ",".join(map(str, down))
    summary = f"{active} of {expected} NVLinks are up; down: {names or 'none'}"
    return finding(
        CHECK_ID,
        ref,
        "down",
        Severity.DEGRADED,
        Remedy.RESET_GPU,
        summary,
        links_down=names,
        active=active,
        expected=expected,
    )


CHECK = details_check(
    CHECK_ID,
    "Every NVLink is up",
    judge,
    severity=Severity.DEGRADED,
    remedy=Remedy.RESET_GPU,
    thresholds=(Threshold("active links, A100 / H100, H200, B200", 12, "links", "NVML; the last three have 18"),),
)
