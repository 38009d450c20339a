"""Node count with which a stopped job starts again. Pure.

Slurm would start a job of ``-N 2-4`` on three nodes: only its comment says which sizes are legal (``sizes=2+4``). A job without such a
comment keeps the range that it was submitted with."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.decisions.common import job_reservations
from holdfast.model.book import World
from holdfast.model.elastic_jobs.noderange import node_sizes
from holdfast.model.slurm.cluster import ClusterView, Job, Node


def size_for(world: World, view: ClusterView, job: Job, hold: str | None, exclude: Collection[str]) -> int | None:
    """The largest legal size that the nodes there now can fill; None: its size is left as it is, as none fits or none is declared."""
    sizes = node_sizes(job.comment) if not job.parts else None
    if sizes is None:
        return None
    return sizes.usable(len(_usable(world, view, job, hold, exclude))) or None


def _usable(world: World, view: ClusterView, job: Job, hold: str | None, exclude: Collection[str]) -> list[str]:
    """Nodes of its hold, and idle ones of its partitions that nothing else keeps."""
    mine = frozenset(view.reservations[hold].nodes) if hold is not None else frozenset[str]()
    others = job_reservations.kept_for_others(world, hold or "", job) - mine
    partitions = set(job.partition.split(","))
    return [
        name
        for name, node in view.nodes.items()
        if partitions & set(node.partitions) and name not in exclude and name not in others and _serves(node)
        if name in mine or node.base_state == "IDLE"
    ]


def _serves(node: Node) -> bool:
    return node.responding and not (node.out_of_service or node.asleep or node.rebooting or "MAINTENANCE" in node.flags)
