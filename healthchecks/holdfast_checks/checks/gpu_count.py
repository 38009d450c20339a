"""``gpu.count``: is every GPU of this node there and at work?"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.inventory import GpuRef, Inventory
from holdfast_checks.per_gpu import finding, ok
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, snapshot_of
from holdfast_checks.result import Remedy, Result, Severity, Verdict
from holdfast_checks.snapshot import Snapshot

CHECK_ID = "gpu.count"


@dataclass(frozen=True, slots=True)
class Facts:
    """What is there, and what should be."""

    snapshot: Snapshot
    inventory: Inventory
    expected: int | None
    """None: as many as the inventory knows."""


def gather(context: Context) -> Facts:
    """Raises NotGathered without a snapshot, NotApplicable on a node without GPUs."""
    snapshot = snapshot_of(context)
    if not snapshot.count and not context.settings.expected_gpus and not context.inventory.gpus:
        raise NotApplicable("this node has no GPU")
    return Facts(snapshot, context.inventory, context.settings.expected_gpus)


def judge(facts: Facts) -> tuple[Result, ...]:
    """A finding for each GPU lost or missing; one for the node where nobody can say which GPU it is."""
    lost = _lost(facts)
    named = [(ref, enumerated) for ref, enumerated in lost if ref.uuid is not None]
    at_work = [gpu for gpu in facts.snapshot.gpus if not gpu.lost]
    results = [ok(CHECK_ID, gpu.ref) for gpu in at_work]
    results += [
        finding(
            CHECK_ID,
            ref,
            "lost",
            Severity.FATAL,
            Remedy.REBOOT,
            "GPU is lost" if enumerated else "GPU is missing",
            enumerated=facts.snapshot.count,
        )
        for ref, enumerated in named
    ]
    results.append(_of_node(facts, len(at_work), named=len(named), nameless=len(lost) - len(named)))
    return tuple(results)


def _lost(facts: Facts) -> list[tuple[GpuRef, bool]]:
    """Every GPU that does not work, named as well as can be, and whether NVML still counts it.

    NVML cannot say who a lost GPU is; what the inventory misses has the names. The NVML index tells which is which
    as long as it fits, otherwise they are given out in order."""
    missing = list(facts.inventory.missing(facts.snapshot))
    found: list[tuple[GpuRef, bool]] = []
    for gpu in (gpu for gpu in facts.snapshot.gpus if gpu.lost):
        ref = _name(gpu.ref, missing)
        if ref in missing:
            missing.remove(ref)
        found.append((ref, True))
    return found + [(ref, False) for ref in missing]


def _name(ref: GpuRef, missing: list[GpuRef]) -> GpuRef:
    if ref.uuid is not None:
        return next((known for known in missing if known.uuid == ref.uuid), ref)
    by_index = [known for known in missing if known.index == ref.index]
    return (by_index or missing or [ref])[0]


def _of_node(facts: Facts, at_work: int, named: int, nameless: int) -> Result:
    """Under a component of its own name a nameless GPU could never be cleared again: the node stands for it."""
    expected = facts.expected if facts.expected is not None else at_work + named + nameless
    if not nameless and at_work + named >= expected:
        return Result(CHECK_ID, Verdict.OK, summary=f"{at_work} GPUs at work", sticky=True)
    return Result(
        CHECK_ID,
        Verdict.FAILED,
        code="count",
        severity=Severity.FATAL,
        remedy=Remedy.REBOOT,
        summary=f"{at_work} GPUs at work, {expected} expected",
        evidence={
            "at_work": at_work,
            "lost_nameless": nameless,
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
)
