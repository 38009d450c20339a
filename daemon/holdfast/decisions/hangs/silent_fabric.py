"""Silence of the fabric under a job: since when no bytes were carried. Pure.

ByteRobust calls a job hung whose RDMA devices have carried nothing for ten minutes. All nodes of the job must report it: if one reports
nothing, has no such device, or may carry another job's bytes, the result is unknown."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.decisions.common import node_agents, slurm_view
from holdfast.model.book import World
from holdfast.model.elastic_jobs.elastic import declares_elastic
from holdfast.model.slurm.cluster import ClusterView, Job

LATE_S = 60.0
"""An agent samples every half minute and reports at its next heartbeat: a job's first minute may show the bytes of the job before."""


def silent_since(world: World, job: Job) -> datetime | None:
    """Start of the silence. None: not silent for ``hangs.silent_s`` yet, or too little is known. A group of an elastic job has its own
    rule."""
    silent_s = world.policy.hangs.silent_s
    if silent_s == 0 or world.view is None or job.start_time is None or len(job.nodes) < 2 or _elastic(job):
        return None
    first = job.start_time + timedelta(seconds=LATE_S)
    last = world.now - timedelta(seconds=silent_s)
    since = first
    for node in job.nodes:
        moved_at = moved_of(world, node)
        if moved_at is None or not first < moved_at < last:
            return None
        since = max(since, moved_at)
    return None if _shared(world.view, job) else since


def moved_of(world: World, node: str) -> datetime | None:
    """Time when the node last carried bytes, as its agent reports; None if the agent is not reporting or does not know."""
    agent = node_agents.agent_of(world, node)
    return None if agent is None else agent.fabric_moved_at


def _elastic(job: Job) -> bool:
    return any(declares_elastic(part.comment) for part in job.components)


def _shared(view: ClusterView, job: Job) -> bool:
    own, nodes = {part.key.job_id for part in job.components}, set(job.nodes)
    others = (j for j in view.jobs.values() if j.key.job_id not in own and slurm_view.holds(j))
    return any(not nodes.isdisjoint(other.nodes) for other in others)
