"""``gpu.count``: every GPU of this node is present and works."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.inventory import GpuInventory
from holdfast_checks.per_gpu import absent, finding, ok
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, Threshold, expected_gpus, snapshot_of
from holdfast_checks.result import Remedy, Result, Severity
from holdfast_checks.snapshot import GpuSnapshot, NvmlReading, Snapshot

CHECK_ID = "gpu.count"

_REFUSED = {
    8: ("power", "GPU has no external power", Remedy.HUMAN),
    11: ("irq", "GPU's interrupts do not arrive", Remedy.REBOOT),
    14: ("inforom", "GPU has a corrupted infoROM", Remedy.REBOOT),
    16: ("reset", "GPU must be reset", Remedy.RESET_GPU),
    17: ("refused", "GPU is blocked by the operating system", Remedy.REBOOT),
    999: ("refused", "GPU cannot be opened", Remedy.REBOOT),
}
"""NVML's return codes for a GPU that it counts and does not give out. Any other one (a time-out) says nothing about the GPU."""


@dataclass(frozen=True, slots=True)
class GpuCountFacts:
    """What is there, and what should be."""

    snapshot: Snapshot
    inventory: GpuInventory
    expected: int | None
    """None: as many as the inventory knows."""


def gather(context: Context) -> GpuCountFacts:
    """Raises NotGathered without a snapshot, NotApplicable on a node without GPUs."""
    snapshot = snapshot_of(context)
    expected = expected_gpus(context.settings)
    if not snapshot.count and not expected and not context.inventory.gpus:
        raise NotApplicable("this node has no GPU")
    return GpuCountFacts(snapshot, context.inventory, expected)


def judge(facts: GpuCountFacts) -> tuple[Result, ...]:
    """A finding for each GPU lost, missing or refused; one for the node where the GPU cannot be identified."""
    at_work = [gpu for gpu in facts.snapshot.gpus if gpu.at_work]
    results = [ok(CHECK_ID, gpu.ref) for gpu in at_work]
    absentees = _absentees(facts)
    results += [_judge_one(facts, ref, gpu) for ref, gpu in absentees if ref.uuid is not None]
    results.append(_of_node(facts, len(at_work), absentees))
    return tuple(results)


Absentee = tuple[GpuRef, GpuSnapshot | None]
"""A GPU that does not work, and what NVML shows of it (None: not even counted)."""


def _absentees(facts: GpuCountFacts) -> list[Absentee]:
    """Every GPU that does not work, named as well as can be.

    NVML cannot say who a lost GPU is; the GPUs missing from the inventory have the names. They are matched by NVML index
    as long as it fits, otherwise in order."""
    missing = list(facts.inventory.missing(facts.snapshot))
    found: list[Absentee] = []
    for gpu in (gpu for gpu in facts.snapshot.gpus if not gpu.at_work):
        ref = _name(gpu.ref, missing)
        if ref in missing:
            missing.remove(ref)
        found.append((ref, gpu))
    return found + [(ref, None) for ref in missing]


def _name(ref: GpuRef, missing: list[GpuRef]) -> GpuRef:
    if ref.uuid is not None:
        return next((known for known in missing if known.uuid == ref.uuid), ref)
    by_index = [known for known in missing if known.index == ref.index]
    return (by_index or missing or [ref])[0]


def _judge_one(facts: GpuCountFacts, ref: GpuRef, gpu: GpuSnapshot | None) -> Result:
    counted = facts.snapshot.count
    if gpu is None or gpu.lost:
        summary = "GPU is missing" if gpu is None else "GPU is lost"
        return finding(CHECK_ID, ref, "lost", Severity.FATAL, Remedy.REBOOT, summary, enumerated=counted)
    refusal = _REFUSED.get(gpu.failed or 0)
    if refusal is None:
        return absent(CHECK_ID, ref, NvmlReading(error=f"NVML answered {gpu.failed}"), "the GPU")
    code, summary, remedy = refusal
    return finding(CHECK_ID, ref, code, Severity.DEGRADED, remedy, summary, nvml_code=gpu.failed or 0)


def _of_node(facts: GpuCountFacts, at_work: int, absentees: list[Absentee]) -> Result:
    """Reported for the node: a finding of a nameless GPU could never be cleared again."""
    named = sum(ref.uuid is not None for ref, _gpu in absentees)
    lost = sum(ref.uuid is None and gpu is not None and gpu.lost for ref, gpu in absentees)
    refused = len(absentees) - named - lost
    expected = facts.expected if facts.expected is not None else at_work + named + lost
    short = expected - at_work - named
    if not lost and short <= 0:
        return Result.ok(CHECK_ID, summary=f"{at_work} GPUs at work", sticky=True)
    if not lost and short <= refused:
        return Result.unknown(CHECK_ID, summary=f"NVML refuses {refused} GPUs that no source names", sticky=True)
    return Result.finding(
        CHECK_ID,
        Severity.FATAL,
        Remedy.REBOOT,
        code="count",
        summary=f"{at_work} GPUs at work, {expected} expected",
        evidence={
            "at_work": at_work,
            "lost_nameless": lost,
            "expected": expected,
            "enumerated": facts.snapshot.count,
        },
        sticky=True,
    )


CHECK = Check(
    id=CHECK_ID,
    title="Every GPU is there and at work",
    needs=frozenset({Need.NVML}),
    interval_s=15,
    cost=Cost.PASSIVE,
    severity=Severity.FATAL,
    remedy=Remedy.REBOOT,
    gather=gather,
    judge=judge,
    observe=False,
    thresholds=(
        Threshold(
            "GPUs missing", 1, "GPUs", "agent.toml, else the instance type (EC2 DescribeInstanceTypes), else seen"
        ),
    ),
)
