"""The classes of kernel lines as checks: what the log holds now. An agent follows the log instead, as lines come."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.inventory import GpuInventory
from holdfast_checks.kernel.devices import Devices
from holdfast_checks.kernel.repeats import Repeats
from holdfast_checks.kernel.table import judge_record
from holdfast_checks.probes.kmsg import read_present
from holdfast_checks.probes.kmsg_record import KernelRecord
from holdfast_checks.registry import Check, Context, Cost, Need, NotGathered, Threshold
from holdfast_checks.result import Remedy, Result, Severity
from holdfast_checks.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """The kernel log and the devices of this node."""

    records: tuple[KernelRecord, ...]
    devices: Devices


def kernel_check(
    check: str,
    title: str,
    severity: Severity,
    remedy: Remedy,
    *,
    gpus: bool = False,
    thresholds: tuple[Threshold, ...] = (),
) -> Check:
    """The check of one class of lines. ``gpus``: its lines name GPUs, which NVML has to name."""

    def judge(facts: KernelFacts) -> tuple[Result, ...]:
        repeats = Repeats()
        results = (
            judge_record(record.message, facts.devices, record.monotonic_s)
            for record in facts.records
            if record.from_kernel
        )
        found = tuple(repeats.weigh(result) for result in results if result is not None and result.check == check)
        return found or (Result.ok(check, summary="no such line in the kernel log"),)

    return Check(
        id=check,
        title=title,
        needs=frozenset({Need.KMSG, Need.NVML} if gpus else {Need.KMSG}),
        interval_s=0,
        cost=Cost.PASSIVE,
        severity=severity,
        remedy=remedy,
        gather=gather,
        judge=judge,
        thresholds=thresholds,
    )


def gather(context: Context) -> KernelFacts:
    """Raises NotGathered where the log may not be read."""
    inventory = context.inventory
    if isinstance(context.nvml, Snapshot):
        inventory = GpuInventory(inventory.gpus).learn(context.nvml)
    settings = context.settings
    try:
        records = tuple(read_present(settings.kmsg_path))
    except OSError as error:
        raise NotGathered(f"{settings.kmsg_path}: {error.strerror}") from error
    return KernelFacts(records, Devices(inventory.by_pci(), settings.sysfs))
