"""Rendezvous of an elastic job, named so that no job ever gets that of an earlier one with its id. Pure.

The submit time is read from elements of the base array that were never requeued. Where none is left it comes from the controller's memory,
else from the rendezvous that is open for this job id. Rules: ``docs/quorum.md``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from holdfast.decisions.common.elastic_jobs import ElasticJob, elastic_jobs
from holdfast.model.book import World
from holdfast.model.elastic_jobs.room_names import KnownRoom, RoomName
from holdfast.model.elastic_jobs.rooms import RoomView
from holdfast.model.slurm.cluster import ClusterView

Opened = Mapping[RoomName, datetime | None]
"""Open rendezvous of elastic jobs → when the first thing happened there; None: nothing yet, or it was not asked for."""
SKEW_S = 60.0
"""Between the clocks of slurmctld and of the quorum service."""


def known_room(world: World, job: ElasticJob) -> KnownRoom:
    """Rendezvous from Slurm and the controller's memory alone, for callers that do not query the quorum service."""
    return room_of(job, world.book.rooms.get(job.base_array_id), {})


def is_of(known: KnownRoom, job: ElasticJob) -> bool:
    """Whether this record is of this very job, and not of an earlier one with its id."""
    if known.uid != job.uid:
        return False
    if job.submitted_s is None:
        return job.shown_since_s >= known.submitted_s  # a requeue only moves the submit time on
    return job.submitted_s == known.submitted_s or (not known.exact and job.submitted_s < known.submitted_s)


def room_of(job: ElasticJob, known: KnownRoom | None, opened: Opened) -> KnownRoom:
    """``known``: what is remembered of this job id; ``opened``: also those of other jobs."""
    if known is not None and is_of(known, job):
        return known
    base, exact = job.base_array_id, job.submitted_s
    mine = {n: at for n, at in opened.items() if n.base_array_id == base and (known is None or n != known.name)}
    since_s = job.shown_since_s if exact is None else exact
    if exact is None:
        times = [n.submitted_s for n in mine if n.submitted_s is not None and n.submitted_s <= since_s]
        if times:
            return KnownRoom(base, job.uid, max(times), exact=False)
    old = RoomName(base)
    if old in mine and RoomName(base, since_s) not in mine and _may_be_of(job, mine[old]):
        return KnownRoom(base, job.uid, since_s, exact is not None, old_name=True)
    return KnownRoom(base, job.uid, since_s, exact is not None)


def _may_be_of(job: ElasticJob, began: datetime | None) -> bool:
    """Whether a rendezvous named by the job id alone may be this job's: nothing happened there before the job was submitted."""
    return job.submitted_s is None or began is None or began.timestamp() >= job.submitted_s - SKEW_S


def unsettled(jobs: Iterable[ElasticJob], known: Mapping[int, KnownRoom]) -> frozenset[int]:
    """Base arrays without a record in memory: the quorum service has to be asked for its open rendezvous."""
    return frozenset(
        job.base_array_id for job in jobs if (mine := known.get(job.base_array_id)) is None or not is_of(mine, job)
    )


def remembered(view: ClusterView, known: Mapping[int, KnownRoom], opened: Opened) -> Mapping[int, KnownRoom]:
    """Records to keep: of living jobs, and of finished ones as long as their rendezvous is open."""
    living = {j.base_array_id: room_of(j, known.get(j.base_array_id), opened) for j in elastic_jobs(view)}
    return living | {n: room for n, room in known.items() if n not in living and room.name in opened}


def outlived(room: RoomView, view: ClusterView, known: Mapping[int, KnownRoom]) -> bool:
    """Whether a living job that was submitted later has the job id of this rendezvous, and its own rendezvous."""
    name = room.name_of_job
    mine = known.get(name.base_array_id) if name is not None else None
    if name is None or mine is None or mine.name == name:
        return False
    lives = any(job.base_array_id == name.base_array_id for job in elastic_jobs(view))
    return lives and (name.submitted_s is None or name.submitted_s < mine.submitted_s)
