"""Rules about nodes and the spare pool."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.doctor.advice import Advice, AdviceLevel
from holdfast.doctor.facts import DoctorFacts, SlurmFacts, names
from holdfast.model.ids import incident_of_reason
from holdfast.model.slurm.cluster import Node


def spares(slurm: SlurmFacts, facts: DoctorFacts) -> Iterator[Advice]:
    pool = facts.policy.spare_reservation
    owner = slurm.value("SlurmUser").partition("(")[0] or "root"
    found = facts.spares()
    if not found:
        yield Advice(
            "pool.no_spare",
            AdviceLevel.WARNING,
            f"no spare: there is no node in the reservation {pool}",
            "A recovered job waits until some node comes free, or until the bad one is repaired.",
            f"scontrol create reservation ReservationName={pool} StartTime=now Duration=UNLIMITED Users={owner} "
            "Flags=IGNORE_JOBS Nodes=NODE",
        )
    elif all(node.out_of_service for node in found):
        yield Advice(
            "pool.no_spare",
            AdviceLevel.WARNING,
            f"every spare is drained or down: {names(node.name for node in found)}",
            "A recovered job waits until some node comes free, or until the bad one is repaired.",
            f"scontrol show node {found[0].name}   # Reason= says why",
        )


def spare_fits(slurm: SlurmFacts, facts: DoctorFacts) -> Iterator[Advice]:
    found = facts.spares()
    if not found:
        return
    spare_names = {node.name for node in found}
    serving = [node for node in slurm.computing if node.gpu_count and node.name not in spare_names]
    for partition in sorted({name for node in serving for name in node.partitions}):
        needed = max(node.gpu_count for node in serving if partition in node.partitions)
        if not any(_fits(spare, partition, needed) for spare in found):
            yield Advice(
                "pool.spare_does_not_fit",
                AdviceLevel.WARNING,
                f"no spare in partition {partition} has {needed} GPUs",
                "A job of that partition cannot use the spares that there are.",
                f"slurm.conf: add a spare ({names(spare_names)}) to PartitionName={partition} Nodes=…",
            )


def _fits(spare: Node, partition: str, gpus: int) -> bool:
    return partition in spare.partitions and spare.gpu_count >= gpus


def invalid(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    bad = [node.name for node in slurm.computing if "INVALID_REG" in node.flags]
    if bad:
        yield Advice(
            "pool.invalid_registration",
            AdviceLevel.WARNING,
            f"registered with less than slurm.conf promises: {names(bad)}",
            "Slurm drains such a node automatically, mostly because a GPU is missing that Gres= promises.",
            f"scontrol show node {min(bad)}   # compare with slurmd -C and slurmd -G on the node",
        )


def foreign_drains(slurm: SlurmFacts, _: DoctorFacts) -> Iterator[Advice]:
    theirs = [n.name for n in slurm.computing if n.out_of_service and incident_of_reason(n.reason) is None]
    if theirs:
        yield Advice(
            "pool.foreign_drain",
            AdviceLevel.HINT,
            f"taken out of service by an operator or another tool: {names(theirs)}",
            "Holdfast never clears these drains; the nodes are out of service until an operator resumes them.",
            f"scontrol update NodeName={min(theirs)} State=RESUME   # when its reason no longer holds",
        )


RULES = (spares, spare_fits, invalid, foreign_drains)
