"""What ``/v1/jobs`` shows: jobs on record, and those made of replica groups. Shapes, and how they come from the core's nouns. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pydantic import Field

from holdfast.api.shapes import JobShape, Shape
from holdfast.controller.decide.elastic import asked_to_leave, last_decision, leaving_groups
from holdfast.controller.groups import ElasticJob, Group, Role, elastic_jobs
from holdfast.controller.quiet import newest_of, words_of
from holdfast.controller.suspects import ABOUT_JOBS, run_of
from holdfast.model.action import IntentState
from holdfast.model.book import World
from holdfast.model.incident import Incident


class GroupShape(Shape):
    """One replica group: an element of one of the job's two arrays."""

    group: int = Field(description="Its index, SLURM_ARRAY_TASK_ID.")
    role: Role
    job_id: int = Field(description="Slurm's id of its record; elements that have not started share one.")
    start: str = Field(
        description="Name of this start in the quorum room; empty: it has not started.", examples=["123.0"]
    )
    state: str
    reason: str = Field(description="Why it waits, in Slurm's word.")
    nodes: list[str]
    waits_until: datetime | None = Field(description="Slurm does not start it before, unless it is released.")
    leaving: bool = Field(description="It was asked to leave and is still there.")
    step: int | None = Field(description="Last step that this start told of; null: it told of none.")
    phase: str = Field(
        description="What it was doing then: `init`, `step`, `waiting`, `heal`, `checkpoint`, `leaving`, or a word of its own."
    )
    trouble: str = Field(
        description="Check of an open incident about this start: `job.hung`, `job.straggler`; empty: there is none."
    )
    incident_id: str = Field(description="That incident; empty: there is none.")


class DecisionShape(Shape):
    """The last step of the last hour that was for the job's size."""

    at: datetime
    reason: str
    state: IntentState
    outcome: str


class ElasticJobShape(Shape):
    """A job made of replica groups, as Slurm shows it now."""

    room: str = Field(examples=["job-71"])
    base_job_id: int = Field(description="Id of the array with the least number of groups.")
    flexible_job_ids: list[int]
    name: str
    user: str
    uid: int
    sizes: str = Field(description="As the job's comment declares them.", examples=["2:8:2+4+8"])
    legal: list[int]
    spares: int
    running: int = Field(description="Groups that run now, spares among them.")
    size: int = Field(description="Legal size that they fill; 0: fewer than the least.")
    target: int = Field(description="Legal size once those that were asked to leave are gone.")
    waiting: int
    groups: list[GroupShape]
    decision: DecisionShape | None = Field(description="null: nothing was decided in the last hour.")


class JobsShape(Shape):
    jobs: list[JobShape]
    elastic: list[ElasticJobShape] = Field(description="Those that run or wait now.")


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
        i.job: i for i in reversed(world.book.open_incidents()) if i.check in ABOUT_JOBS
    }  # the oldest of a run counts
    return ElasticJobShape(
        room=job.room,
        base_job_id=job.base_array_id,
        flexible_job_ids=list(job.flexible_array_ids),
        name=job.name,
        user=job.user,
        uid=job.uid,
        sizes=job.sizes.text,
        legal=list(job.sizes.legal),
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


def _group(world: World, group: Group, troubles: Mapping[str, Incident], *, leaving: bool) -> GroupShape:
    words = words_of(world, group.job) if group.start else ()
    told = newest_of(words) if words else None
    trouble = troubles.get(run_of(group.job)) if group.start else None
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
