"""May a node serve a job again that Holdfast kept off it? Pure.

A running job's exclusions cannot be changed. So what a recovery added stays until the job is in the queue once more: at our own
restart the release sets the list; when the user requeues the job, it is taken back here."""

from __future__ import annotations

import zlib
from dataclasses import replace

from holdfast.controller import facts
from holdfast.controller.decide.part import Part
from holdfast.model import steps
from holdfast.model.action import AllowNodes, Proposal
from holdfast.model.book import World
from holdfast.model.cluster import ClusterView, Job
from holdfast.model.incident import Recovery


def allow(world: World) -> Part:
    view = facts.fresh_view(world)
    if view is None:
        return Part()
    proposals: list[Proposal] = []
    changed: list[Recovery] = []
    suspects = facts.suspect_nodes(world)
    for recovery in _newest(world):
        job = _queued(view, recovery)
        if job is None:
            continue
        ours = tuple(n for n in recovery.excluded_added if n in job.excluded_nodes)
        if ours != recovery.excluded_added:
            # Taken back, by us or by the user. What is excluded from now on is the user's own.
            changed.append(replace(recovery, excluded_added=ours))
        serving = tuple(sorted(set(ours) - suspects))
        if serving:
            proposals += _allow(world, recovery, job, serving)
    return Part(tuple(proposals), tuple(changed))


def _newest(world: World) -> list[Recovery]:
    """The last recovery of each job, where it is over and left something."""
    newest: dict[tuple[str, int, int], Recovery] = {}
    for recovery in sorted(world.book.recoveries.values(), key=lambda r: (r.restarts_before, r.created_at)):
        newest[recovery.job.cluster, recovery.job.job_id, recovery.uid] = recovery
    return [r for _, r in sorted(newest.items()) if r.final and r.excluded_added]


def _queued(view: ClusterView, recovery: Recovery) -> Job | None:
    """Its job, if it waits in the queue again."""
    job = view.jobs.get(recovery.job.job_id)
    if job is None or not job.continues(recovery.job) or job.uid != recovery.uid or job.state != "PENDING":
        return None
    return job


def _allow(world: World, recovery: Recovery, job: Job, nodes: tuple[str, ...]) -> list[Proposal]:
    version = zlib.crc32(",".join(nodes).encode())
    step = steps.allow_nodes(job.key, job.restarts, version, facts.hour(world))
    if not world.may_try(recovery.incident_id, step):
        return []
    reason = f"{','.join(nodes)} serves again: job {job.key} need not be kept off it"
    return [Proposal(recovery.incident_id, step, AllowNodes(job.key, nodes), reason, order=60)]
