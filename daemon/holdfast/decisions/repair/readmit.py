"""Release of node exclusions: when a recovered job may use an excluded node again. Pure.

A running job's exclusions cannot be changed. So an exclusion that a recovery added stays until the job is pending again: at Holdfast's own
restart the release sets the list; if the user requeues the job, or holds the one that Holdfast requeued, it is removed here. Exclusions
that leave no node that fits are removed too, except for nodes that the job could start on."""

from __future__ import annotations

import zlib
from dataclasses import replace

from holdfast.decisions.common import attempted_steps, node_incidents, slurm_view
from holdfast.decisions.common.part import Part
from holdfast.decisions.recovery.waiting import added_exclusions
from holdfast.model.actions import steps
from holdfast.model.actions.action import AllowNodes, Proposal
from holdfast.model.book import World
from holdfast.model.incidents.incident import Recovery, RecoveryPhase
from holdfast.model.slurm.cluster import ClusterView, Job


def allow(world: World) -> Part:
    view = slurm_view.fresh_view(world)
    if view is None:
        return Part()
    proposals: list[Proposal] = []
    changed: list[Recovery] = []
    for recovery in _newest(world):
        job = _queued(view, recovery)
        if job is None or job.unreadable or not job.exclusions_known:
            continue
        ours = _ours(recovery, job)
        if recovery.final and ours != recovery.excluded_added:
            # Taken back, by us or by the user. What is excluded from now on is the user's own.
            changed.append(replace(recovery, excluded_added=ours))
        fewer = job.fits_nowhere or recovery.in_service_only
        serving = tuple(sorted(set(ours) - node_incidents.to_exclude(world, in_service_only=fewer)))
        if serving:
            proposals += _allow(world, recovery, job, serving)
    return Part(tuple(proposals), tuple(changed))


def _newest(world: World) -> list[Recovery]:
    """The last recovery of each job, where it is over and left something, or has its job in the queue."""
    newest: dict[tuple[str, int, int], Recovery] = {}
    for recovery in sorted(world.book.recoveries.values(), key=lambda r: (r.restarts_before, r.created_at)):
        newest[recovery.job.cluster, recovery.job.job_id, recovery.uid] = recovery
    return [
        r for _, r in sorted(newest.items()) if (r.final and r.excluded_added) or r.phase is RecoveryPhase.RESTARTING
    ]


def _ours(recovery: Recovery, job: Job) -> tuple[str, ...]:
    """What Holdfast excluded. While its own restart waits the release sets the list, unless the job is held: then it is not released."""
    if recovery.final:
        return tuple(n for n in recovery.excluded_added if n in job.excluded_nodes)
    return added_exclusions(recovery, job) if job.held else ()


def _queued(view: ClusterView, recovery: Recovery) -> Job | None:
    """Its job, if it waits in the queue again."""
    job = view.jobs.get(recovery.job.job_id)
    if job is None or not job.continues(recovery.job) or job.uid != recovery.uid or job.state != "PENDING":
        return None
    return job


def _allow(world: World, recovery: Recovery, job: Job, nodes: tuple[str, ...]) -> list[Proposal]:
    version = zlib.crc32(",".join(nodes).encode())
    step = steps.allow_nodes(job.key, job.restarts, version, attempted_steps.hour(world))
    if not world.may_try(recovery.incident_id, step):
        return []
    reason = f"job {job.key} need not be kept off {','.join(nodes)} any more"
    return [Proposal(recovery.incident_id, step, AllowNodes(job.key, nodes), reason, order=60)]
