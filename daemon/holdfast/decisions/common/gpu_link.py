"""Link between a faulty GPU and the jobs that hold it, from the map of the node's own slurmd. Pure.

Slurm shows which *indices* of a node's GRES a job holds, a finding names the device's minor number. They are the same number only where
gres.conf happens to list the files so. The node's agent reports the map between them (:mod:`holdfast.agent.sources.gres`)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import Enum

from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident
from holdfast.model.slurm.cluster import Job, Node


class GpuLink(Enum):
    """Relation of a job on the incident's node to the fault."""

    NODE = "node"
    """The node itself is at fault."""
    WHOLE_NODE = "whole_node"
    """The job holds every GPU that Slurm has on the node, or the node alone, and nothing proves that the one at fault is none of these."""
    HOLDS = "holds"
    """It is proved that it holds a GPU at fault."""
    HOLDS_OTHERS = "holds_others"
    """It is proved that it holds none of them: it holds others, or Slurm gives those at fault to no job."""
    NO_GPU = "no_gpu"
    """Slurm shows no GPU of the node as the job's."""
    UNPROVEN = "unproven"
    """It holds GPUs of the node, or held some for all that is known, and nothing proves which."""


HIT = frozenset({GpuLink.NODE, GpuLink.WHOLE_NODE, GpuLink.HOLDS})
"""A running job may be stopped for the fault."""
PROOF_WAIT_S = 30.0
"""Longest time for a proof before its absence is recorded: three heartbeats at the slowest pace (``pace.LONGEST_S``), as in a cold start.
The agent's map comes with a heartbeat, and is read again whenever the agent or slurmd starts."""


def link(world: World, incident: Incident, job: Job) -> GpuLink:
    """Relation of the job to the fault."""
    if incident.gpu_minors is None:
        return GpuLink.NODE
    held = job.gpu_indices.get(incident.node, frozenset())
    shared = job.shared_indices.get(incident.node, {})
    given = _map_of(world, incident)
    if (
        given
        and incident.gpu_minors
        and incident.gpu_minors.isdisjoint({minor for minors in given.values() for minor in minors})
    ):
        return GpuLink.HOLDS_OTHERS
    if not held and not shared:
        if job.exclusive:
            return GpuLink.WHOLE_NODE
        return GpuLink.NO_GPU if job.gpus_known else GpuLink.UNPROVEN
    node = world.view.nodes.get(incident.node) if world.view is not None else None
    if node is not None and 0 < node.gpu_count <= len(held) and (given or not _has_more(world, node)):
        return GpuLink.WHOLE_NODE
    minors = _minors(given, {**shared, **({"gpu": held} if held else {})})
    if minors is None:
        return GpuLink.UNPROVEN
    return GpuLink.HOLDS if minors & incident.gpu_minors else GpuLink.HOLDS_OTHERS


def hits(world: World, incident: Incident, job: Job) -> bool:
    """Whether the running job is hit, by proof."""
    return link(world, incident, job) in HIT


def may_have_hit(world: World, incident: Incident, job: Job) -> bool:
    """Whether the fault may have ended a job that failed on the node: to recover it stops no job, so no proof is asked."""
    return link(world, incident, job) in HIT | {GpuLink.UNPROVEN}


def proof_overdue(world: World, incident: Incident) -> bool:
    """Whether the agent has had enough time to prove it, since the fault was reported and since this controller started to listen."""
    since = max(incident.opened_at, world.listening_since or incident.opened_at)
    return world.now - since >= timedelta(seconds=PROOF_WAIT_S)


def _has_more(world: World, node: Node) -> bool:
    """Whether the machine has GPUs that Slurm does not give out."""
    record = world.book.nodes.get(node.name)
    return record is not None and len(record.gpu_uuids) > node.gpu_count


def _map_of(world: World, incident: Incident) -> Mapping[str, tuple[int, ...]]:
    """The map of the machine and the boot that had the fault: minors may change with a boot."""
    agents = world.agents.get(incident.node, ())
    mine = (a for a in agents if (a.instance_id, a.boot_id) == (incident.instance_id, incident.boot_id))
    return next((agent.gres for agent in mine if agent.gres is not None), {})


def _minors(gres: Mapping[str, tuple[int, ...]], held: Mapping[str, frozenset[int]]) -> frozenset[int] | None:
    found: set[int] = set()
    for kind, indices in held.items():
        minors = gres.get(kind, ())
        if any(not 0 <= index < len(minors) for index in indices):
            return None
        found |= {minors[index] for index in indices}
    return frozenset(found)
