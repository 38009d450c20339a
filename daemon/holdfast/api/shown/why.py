"""Why runs of a job ended, as the API shows it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict

from holdfast.api.answers.job_shapes import JobEndShape, StoppedRunShape, WhyShape
from holdfast.decisions.job_ends import run_ends
from holdfast.decisions.recovery.owner_note import why_stopped
from holdfast.decisions.recovery.started_again import by_holdfast, now_says, outlook
from holdfast.model.book import World
from holdfast.model.elastic_jobs.elastic import declares_elastic
from holdfast.model.incidents.incident import Incident, Recovery
from holdfast.model.jobs.job_ends import JobEnd
from holdfast.model.slurm.cluster import Job

_FEW = 20
"""Elements of an array, and runs, that are named."""


def job_id_of(world: World | None, job_id: int, task: int | None) -> int | None:
    """Slurm's own id of what is asked for: an array's element, or the leader of a heterogeneous job; None: no such element is known."""
    jobs = world.view.jobs if world is not None and world.view is not None else {}
    if task is None:
        parts = (j for j in jobs.values() if any(p.key.job_id == job_id for p in j.parts))
        return job_id if job_id in jobs else next((j.key.job_id for j in parts), job_id)
    ends = world.book.ends.values() if world is not None else ()
    shown = [(j.key.submit_time, j.key.job_id) for j in jobs.values() if _is(j, job_id, task)]
    recorded = [(e.job.submit_time, e.job.job_id) for e in ends if _is(e, job_id, task)]
    return max((*shown, *recorded), default=(None, None))[1]


def _is(job: Job | JobEnd, array: int, task: int) -> bool:
    return (job.array_job_id, job.array_task_id) == (array, task)


def why_shape(
    job_id: int,
    ends: Sequence[JobEnd],
    recoveries: Sequence[Recovery],
    world: World | None,
    uid: int | None,
    incidents: Mapping[str, Incident],
) -> WhyShape | None:
    """Of the job that had this id last; None: nothing is known of one, or it is another user's. ``uid``: of the caller; None: of any.
    ``incidents``: those of the recoveries."""
    job = world.view.jobs.get(job_id) if world is not None and world.view is not None else None
    owners = [job.uid] if job is not None else [e.uid for e in ends[-1:]] or [r.uid for r in recoveries[-1:]]
    if not owners or uid not in (None, owners[0]):
        return None
    told = [r for r in recoveries if r.uid == owners[0] and (job is None or job.continues(r.job))]
    mine = _with_the_last(_same_job(owners[0], job, ends), job, world)
    before = {r.restarts_before: r for r in told}
    known = {e.restarts for e in mine} | {
        r.restarts_before for r in told if world is not None and by_holdfast(world, r, incidents.get(r.incident_id))
    }
    return WhyShape(
        job_id=job_id,
        shown_id=_shown_id(job_id, job, mine),
        user=job.user if job is not None else next((e.user for e in mine), next((r.user for r in told), "")),
        uid=owners[0],
        name=job.name if job is not None else next((e.name for e in mine), ""),
        state=job.state if job is not None else "",
        restarts=job.restarts if job is not None else None,
        note=now_says(world, job, before.get(job.restarts - 1)) if job is not None else "",
        ends=[_end(world, e, before.get(e.restarts)) for e in mine],
        requeued=_requeued(job, known) if job is not None else [],
        elements=_elements(world, job, owners[0]),
        recoveries=[_stopped(world, r, incidents.get(r.incident_id)) for r in told],
    )


def _stopped(world: World | None, recovery: Recovery, incident: Incident | None) -> StoppedRunShape:
    cause = why_stopped(world, incident, recovery) if world is not None and incident is not None else ""
    return StoppedRunShape.model_validate(recovery).model_copy(update={"cause": cause})


def _requeued(job: Job, known: Collection[int]) -> list[int]:
    """Of an elastic job's group Holdfast itself does so, to change the size."""
    return [] if declares_elastic(job.comment) else [n for n in range(job.restarts) if n not in known][-_FEW:]


def _same_job(uid: int, job: Job | None, ends: Sequence[JobEnd]) -> list[JobEnd]:
    """Without those of other jobs that had the id before."""
    return [e for e in ends if e.uid == uid and (job is None or job.continues(e.job))]


def _with_the_last(mine: list[JobEnd], job: Job | None, world: World | None) -> list[JobEnd]:
    """With the end of the run that Slurm shows, where it is not on record."""
    view = world.view if world is not None else None
    last = run_ends.shown(world, view, job) if world is not None and view is not None and job is not None else None
    return mine if last is None or last.id in {e.id for e in mine} else [*mine, last]


def _shown_id(job_id: int, job: Job | None, ends: Sequence[JobEnd]) -> str:
    """As people know it: of an array's element ``4_2``."""
    ids = [job.shown_id] if job is not None else [e.shown_id for e in ends[-1:]]
    return next(iter(ids), str(job_id))


def _elements(world: World | None, job: Job | None, uid: int) -> list[str]:
    """Other elements of its array that have not ended well, as far as the last hour shows."""
    if world is None or job is None or job.array_job_id is None:
        return []
    others: Iterable[JobEnd] = (e for e in world.book.ends.values() if e.array_job_id == job.array_job_id)
    tasks = {e.array_task_id for e in others if e.uid == uid and e.job.job_id != job.key.job_id}
    return [f"{job.array_job_id}_{task}" for task in sorted(t for t in tasks if t is not None)][:_FEW]


def _end(world: World | None, end: JobEnd, recovery: Recovery | None) -> JobEndShape:
    of = outlook(world, end, recovery)
    more = {"again": of.again, "next_step": of.next_step, "advice": of.advice}
    return JobEndShape.model_validate({**asdict(end), **more})
