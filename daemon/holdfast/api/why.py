"""Why runs of a job ended, as the API shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from holdfast.api.job_shapes import JobEndShape, WhyShape
from holdfast.api.shapes import RecoveryShape
from holdfast.controller.job_ends import end_of
from holdfast.controller.why_died import advice
from holdfast.model.book import World
from holdfast.model.cluster import Job
from holdfast.model.incident import Recovery
from holdfast.model.job_ends import JobEnd


def why_shape(
    job_id: int, ends: Sequence[JobEnd], recoveries: Sequence[Recovery], world: World | None, uid: int | None
) -> WhyShape | None:
    """Of the job that had this id last; None: nothing is known of one, or it is another user's. ``uid``: of the caller; None: of any."""
    job = world.view.jobs.get(job_id) if world is not None and world.view is not None else None
    owners = [job.uid] if job is not None else [e.uid for e in ends[-1:]] or [r.uid for r in recoveries[-1:]]
    if not owners or uid not in (None, owners[0]):
        return None
    mine, told = _same_job(owners[0], job, ends), [r for r in recoveries if r.uid == owners[0]]
    now = end_of(world, job) if world is not None and job is not None else None
    if now is not None and now.id not in {e.id for e in mine}:
        mine = [*mine, now]
    return WhyShape(
        job_id=job_id,
        user=job.user if job is not None else next((e.user for e in mine), next((r.user for r in told), "")),
        uid=owners[0],
        name=job.name if job is not None else next((e.name for e in mine), ""),
        state=job.state if job is not None else "",
        ends=[_end(e) for e in mine],
        recoveries=[RecoveryShape.model_validate(r) for r in told if job is None or job.continues(r.job)],
    )


def _same_job(uid: int, job: Job | None, ends: Sequence[JobEnd]) -> list[JobEnd]:
    """Without those of other jobs that had the id before."""
    return [e for e in ends if e.uid == uid and (job is None or job.continues(e.job))]


def _end(end: JobEnd) -> JobEndShape:
    return JobEndShape.model_validate({**asdict(end), "advice": advice(end)})
