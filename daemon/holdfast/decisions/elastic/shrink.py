"""Shrinking of elastic jobs: which groups leave, and why. Pure.

Three grounds: its nodes serve a job of higher priority that Slurm's own preemption does not serve; groups beyond a legal size are of no
use; an operator drained a node. Never below the minimum size, and never a base group for another job's priority."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from holdfast.decisions.common import node_drains
from holdfast.decisions.common.elastic_jobs import ElasticJob, ReplicaGroup
from holdfast.decisions.elastic.grow import FreeNodes, can_use
from holdfast.model.actions import steps
from holdfast.model.book import Book, World
from holdfast.model.elastic_jobs.elastic import GroupRole, LeaveReason
from holdfast.model.ids import UPKEEP
from holdfast.model.slurm.cluster import ClusterView, Job, JobKey


@dataclass(frozen=True, slots=True)
class Leaving:
    """Groups to be asked, all for one reason."""

    groups: tuple[ReplicaGroup, ...]
    reason: LeaveReason
    target: int
    """Size of the job without them, always a legal one."""
    text: str
    """For people."""
    serving: JobKey | None = None
    """The pending job that they make room for."""


def for_priority(world: World, view: ClusterView, job: ElasticJob, coming: frozenset[str]) -> Leaving | None:
    """Room for the first pending job that would fit then. ``coming``: nodes that others' groups were asked to leave already."""
    if not world.policy.elastic.shrink_for_priority:
        return None
    free = FreeNodes(view)
    for pending in _unserved(world, view, job):
        ready = {*free.surely_for(pending), *(n for n in coming if can_use(view, pending, view.nodes[n]))}
        short = pending.num_nodes - len(ready)
        if short <= 0 and set(pending.required_nodes) <= ready:
            continue  # Slurm will start it
        chosen = _enough(view, job, pending, ready)
        leaving = chosen and _down_to_legal(job, chosen)
        if leaving:
            waited = f"job {pending.key} of priority {pending.priority} waits for {max(short, 1)} more nodes"
            return replace(_leaving(job, leaving, LeaveReason.PREEMPT, waited), serving=pending.key)
    return None


def useless(world: World, job: ElasticJob) -> Leaving | None:
    """Groups between two legal sizes for too long; the caller knows that no more of them can start."""
    running, size = len(job.running), job.size
    if not job.gapped or not size or running in (size, *range(job.sizes.most, running + 1)):
        return None
    if any(g.role is GroupRole.BASE for g in job.waiting) or not _for_so_long(
        world, job.changed_at, world.policy.elastic.shrink_useless_after_s
    ):
        return None
    leaving = _youngest(job)[: running - size]
    if len(leaving) < running - size:
        return None
    return _leaving(job, leaving, LeaveReason.SCALE, f"{running} is no legal size and no more groups can start")


def off_drained(world: World, view: ClusterView, job: ElasticJob) -> Leaving | None:
    """Groups on nodes that another user took out of service, as many as leave the minimum number running."""
    if not world.policy.elastic.leave_drained_nodes:
        return None
    spared = len(job.running) - job.sizes.least
    found = [(g, why) for g in job.running if (why := _taken_out(world, view, g))]
    leaving = tuple(g for g, _ in found[: max(0, spared)])
    if not leaving:
        return None
    node, reason = next(why for g, why in found if g in leaving)
    return _leaving(
        job, leaving, reason, f"node {node} was taken out of service: {view.nodes[node].reason or reason.value}"
    )


def _taken_out(world: World, view: ClusterView, group: ReplicaGroup) -> tuple[str, LeaveReason] | None:
    for name in group.nodes:
        node = view.nodes.get(name)
        if node is not None and node.draining and node_drains.drained_by_others(world, node):
            return name, LeaveReason.DRAIN
        if node is not None and "MAINTENANCE" in node.flags and not group.job.reservation:
            return name, LeaveReason.MAINTENANCE
    return None


def _unserved(world: World, view: ClusterView, job: ElasticJob) -> list[Job]:
    """Pending jobs of higher priority that Slurm had time to start by preemption and did not, the highest priority first.

    Each is served once: if it does not start on the nodes that were freed, more nodes may not help either."""
    flexible = [g.job.priority for g in job.running if g.role is not GroupRole.BASE]
    if not flexible:
        return []
    served = served_by(world.book) | world.served
    found = [
        j
        for j in view.jobs.values()
        if j.state == "PENDING"
        and j.waits_for_nodes
        and j.priority > max(flexible)
        and not job.holds(j.key.job_id)
        and (j.key.job_id, j.key.submitted_s) not in served
        and _for_so_long(world, j.eligible_time or j.key.submit_time, world.policy.elastic.priority_wait_s)
    ]
    return sorted(found, key=lambda j: (-j.priority, j.key.job_id))


def served_by(book: Book) -> frozenset[tuple[int, int]]:
    """Id and submit time of the jobs for which groups were asked to leave within the last hour."""
    attempts = (i for i in book.intents.values() if i.incident_id == UPKEEP and i.is_attempt)
    return frozenset(job for i in attempts if (job := steps.served_by(i.step)) is not None)


def _for_so_long(world: World, since: datetime | None, seconds: float) -> bool:
    return since is not None and world.now - since >= timedelta(seconds=seconds)


def _enough(view: ClusterView, job: ElasticJob, pending: Job, ready: set[str]) -> tuple[ReplicaGroup, ...]:
    """The fewest flexible groups whose nodes let it start; empty: there are not enough."""
    wanted = set(pending.required_nodes)
    usable = [g for g in _youngest(job) if any(_frees(view, g, n, pending) for n in g.nodes)]
    chosen: list[ReplicaGroup] = []
    for group in sorted(usable, key=lambda g: not wanted & set(g.nodes)):
        if len(ready) >= pending.num_nodes and wanted <= ready:
            break
        chosen.append(group)
        ready = ready | {n for n in group.nodes if _frees(view, group, n, pending)}
    return tuple(chosen) if len(ready) >= pending.num_nodes and wanted <= ready else ()


def _frees(view: ClusterView, group: ReplicaGroup, name: str, pending: Job) -> bool:
    """The node is the pending job's to use once this group has left it."""
    node = view.nodes.get(name)
    if node is None or node.out_of_service or not can_use(view, pending, node):
        return False
    return {j.key.job_id for j in view.jobs_on(name)} == {group.job.key.job_id}


def _down_to_legal(job: ElasticJob, chosen: tuple[ReplicaGroup, ...]) -> tuple[ReplicaGroup, ...]:
    """Add groups that cannot run without the chosen ones. Empty if the job would fall below its minimum."""
    left = len(job.running) - len(chosen)
    legal = job.sizes.usable(left)
    if not legal:
        return ()
    surplus = 0 if left >= job.sizes.most else left - legal
    others = [g for g in _youngest(job) if g not in chosen]
    return (*chosen, *others[:surplus]) if surplus <= len(others) else ()


def _youngest(job: ElasticJob) -> tuple[ReplicaGroup, ...]:
    """Flexible groups in the order in which they are asked to go: spares, then those that started last."""

    def order(group: ReplicaGroup) -> tuple[bool, float, int]:
        started = group.job.start_time
        return group.role is not GroupRole.SPARE, -(started.timestamp() if started else 0.0), -group.index

    return tuple(sorted((g for g in job.running if g.role is not GroupRole.BASE), key=order))


def _leaving(job: ElasticJob, groups: Sequence[ReplicaGroup], reason: LeaveReason, why: str) -> Leaving:
    target = job.sizes.usable(len(job.running) - len(groups))
    names = ",".join(str(g.index) for g in sorted(groups, key=lambda g: g.index))
    return Leaving(tuple(groups), reason, target, f"{job.label} shrinks to {target} groups, {names} leave: {why}")
