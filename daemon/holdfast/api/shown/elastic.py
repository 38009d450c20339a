"""What ``/v1/jobs`` shows: of jobs made of replica groups: from the core's nouns to the shapes. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.api.answers.job_shapes import DecisionShape, ElasticJobShape, GroupShape
from holdfast.decisions.common.elastic_jobs import ElasticJob, ReplicaGroup, elastic_jobs
from holdfast.decisions.elastic.naming import known_room
from holdfast.decisions.elastic.resize import asked_to_leave, last_decision, leaving_groups
from holdfast.decisions.hangs.progress_stall import newest_of, words_of
from holdfast.model.book import World
from holdfast.model.incidents.incident import ABOUT_JOBS, Incident
from holdfast.model.slurm.cluster import JobRun


def elastic_shapes(world: World | None, uid: int | None, job_id: int | None) -> list[ElasticJobShape]:
    """``uid``: only this user's; ``job_id``: only the job that this id is a part of."""
    if world is None or world.view is None:
        return []
    jobs = (j for j in elastic_jobs(world.view) if uid in (None, j.uid))
    return [_job(world, j) for j in jobs if job_id is None or job_id in _ids(j)]


def _ids(job: ElasticJob) -> set[int]:
    return {job.base_array_id, *job.flexible_array_ids, *(g.job.key.job_id for g in job.groups)}


def _job(world: World, job: ElasticJob) -> ElasticJobShape:
    leaving = leaving_groups(job, asked_to_leave(world))
    decided = last_decision(world, job)
    troubles = {
        run: i
        for i in reversed(world.book.open_incidents())
        if i.kind in ABOUT_JOBS
        for run in (i.run, *map(JobRun.parse, i.stalled))
    }  # the oldest of a run counts
    return ElasticJobShape(
        room=known_room(world, job).room,
        base_job_id=job.base_array_id,
        flexible_job_ids=list(job.flexible_array_ids),
        name=job.name,
        user=job.user,
        uid=job.uid,
        sizes=job.sizes.text,
        legal=job.sizes.up_to(max(len(job.groups), job.sizes.least)),
        spares=job.spec.spares,
        running=len(job.running),
        size=job.size,
        target=job.sizes.usable(len(job.running) - len(leaving)),
        waiting=len(job.waiting),
        groups=[_group(world, g, troubles, leaving=g in leaving) for g in job.groups],
        decision=DecisionShape(
            at=decided.planned_at, reason=decided.reason, state=decided.state, outcome=decided.outcome
        )
        if decided is not None
        else None,
    )


def _group(
    world: World, group: ReplicaGroup, troubles: Mapping[JobRun | None, Incident], *, leaving: bool
) -> GroupShape:
    words = words_of(world, group.job) if group.start else ()
    told = newest_of(words) if words else None
    trouble = troubles.get(group.job.run) if group.start else None
    return GroupShape(
        group=group.index,
        role=group.role,
        job_id=group.job.key.job_id,
        start=group.start,
        state=group.state,
        reason=group.job.reason if group.waiting else "",
        nodes=list(group.nodes),
        waits_until=group.job.eligible_time if group.waiting else None,
        leaving=leaving,
        step=told.progress_step if told is not None else None,
        phase=told.phase if told is not None else "",
        trouble=trouble.check if trouble is not None else "",
        incident_id=trouble.id if trouble is not None else "",
    )
