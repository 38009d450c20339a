"""``gpu.slurm``: NVML shows every GPU that Slurm gives to jobs. A job that is given a GPU that NVML does not show fails as it starts.

``gpu.count`` misses what was there before; this one also misses what no agent has ever seen, such as a GPU that was dead when the node
was built in. Slurm's list is the running slurmd's own (``slurmd -G``); where nothing proves it, nothing is judged."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.inventory import GpuInventory
from holdfast_checks.registry import Check, Context, Cost, Need, NotApplicable, snapshot_of
from holdfast_checks.result import Remedy, Result, Severity
from holdfast_checks.snapshot import Snapshot

CHECK_ID = "gpu.slurm"


@dataclass(frozen=True, slots=True)
class GpuSlurmFacts:
    """What Slurm gives to jobs, and what is known of the GPUs."""

    given: frozenset[int]
    """Device minors (``/dev/nvidiaN``)."""
    snapshot: Snapshot
    inventory: GpuInventory


def gather(context: Context) -> GpuSlurmFacts:
    """Raises NotGathered without a snapshot, NotApplicable where nothing proves what Slurm gives."""
    snapshot = snapshot_of(context)
    if context.slurm_gpus is None:
        raise NotApplicable("nothing proves which GPUs Slurm gives to jobs (holdfast doctor says why)")
    return GpuSlurmFacts(context.slurm_gpus, snapshot, context.inventory)


def judge(facts: GpuSlurmFacts) -> tuple[Result, ...]:
    """One finding for the node. A GPU that was seen and is lost is another check's: it is known here."""
    refs = [*(gpu.ref for gpu in facts.snapshot.gpus), *facts.inventory.gpus]
    known = {ref.minor for ref in refs if ref.minor is not None}
    if any(gpu.ref.minor is None and gpu.ref.uuid is None for gpu in facts.snapshot.gpus):
        return (Result.unknown(CHECK_ID, summary="NVML counts a GPU that it does not name", sticky=True),)
    lacking = sorted(facts.given - known)
    if not lacking:
        return (Result.ok(CHECK_ID, summary=f"NVML shows all {len(facts.given)} GPUs of Slurm", sticky=True),)
    devices = ", ".join(f"/dev/nvidia{minor}" for minor in lacking)
    return (
        Result.finding(
            CHECK_ID,
            Severity.DEGRADED,
            Remedy.HUMAN,
            code="lacking",
            summary=f"Slurm gives jobs {devices}, which NVML does not show ({len(facts.given)} and {len(known)} GPUs)",
            evidence={"lacking": ",".join(map(str, lacking))},
            sticky=True,
        ),
    )


CHECK = Check(
    id=CHECK_ID,
    title="NVML shows every GPU that Slurm gives to jobs",
    needs=frozenset({Need.NVML}),
    interval_s=60,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.HUMAN,
    gather=gather,
    judge=judge,
    hysteresis=(3, 3),
)
