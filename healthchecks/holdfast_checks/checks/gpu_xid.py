"""``gpu.xid`` as a check: what the kernel log holds now. An agent follows the log instead (:mod:`~holdfast_checks.kernel.xid`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast_checks.gpu_ref import GpuRef
from holdfast_checks.inventory import GpuInventory
from holdfast_checks.kernel.repeats import Repeats
from holdfast_checks.kernel.xid import CHECK_ID, parse_live
from holdfast_checks.probes.kmsg import read_present
from holdfast_checks.probes.kmsg_record import KernelRecord
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, NotGathered, without_gpus
from holdfast_checks.result import Remedy, Result, Severity
from holdfast_checks.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class GpuXidFacts:
    """The kernel log and the GPUs of this node."""

    records: tuple[KernelRecord, ...]
    known_pci: Mapping[str, GpuRef]


def gather(context: Context) -> GpuXidFacts:
    """Raises NotGathered where the log may not be read or no GPU is known."""
    inventory = context.inventory
    if isinstance(context.nvml, Snapshot):
        inventory = GpuInventory(inventory.gpus).learn(context.nvml)
    known = inventory.by_pci()
    if not known and without_gpus(context):
        raise NotApplicable("this node has neither GPUs nor NVML")
    if not known:
        raise NotGathered("no GPU of this node is known, so no line can be attributed to one")
    try:
        return GpuXidFacts(tuple(read_present(context.settings.kmsg_path)), known)
    except OSError as error:
        raise NotGathered(f"{context.settings.kmsg_path}: {error.strerror}") from error


def judge(facts: GpuXidFacts) -> tuple[Result, ...]:
    """Every Xid in the log, oldest first. OK says only that there is none: it clears nothing."""
    repeats = Repeats()
    results = [
        repeats.weigh(result)
        for record in facts.records
        if record.from_kernel
        and (result := parse_live(record.message, facts.known_pci, monotonic_s=record.monotonic_s)) is not None
    ]
    return tuple(results) or (Result.ok(CHECK_ID, summary="no Xid in the kernel log"),)


CHECK = Check(
    id=CHECK_ID,
    title="The kernel log names no GPU fault",
    needs=frozenset({Need.KMSG, Need.NVML}),
    interval_s=0,
    cost=Cost.PASSIVE,
    severity=Severity.FATAL,
    remedy=Remedy.REPLACE,
    gather=gather,
    judge=judge,
    observe=False,
)
