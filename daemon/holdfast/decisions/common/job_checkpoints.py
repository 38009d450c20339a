"""What a job reports of its checkpoints, and the step that its next run can resume from. Pure."""

from __future__ import annotations

from holdfast.model.book import CheckpointRecord, World
from holdfast.model.elastic_jobs.elastic import declares_elastic
from holdfast.model.slurm.cluster import Job


def checkpoint_of(world: World, job: Job) -> CheckpointRecord | None:
    """The job's reports about its checkpoints: by its own uid, on a node that it holds or held. An agent's report counts for no other job.

    A task of a heterogeneous job reports for its component; the component that saved last counts for all."""
    nodes = _held_ever(world, job)
    said = (world.book.checkpoint_of(part.key.job_id, job.uid, nodes, job.speaks_since) for part in job.components)
    mine = [record for record in said if record is not None]
    return max(mine, key=lambda r: -1 if r.saved_step is None else r.saved_step, default=None)


def restorable_step(world: World, job: Job) -> int | None:
    """The step that the job's next run can resume from, as the job reports: that of its newest checkpoint; for a group of an elastic job
    the last step that it reported, which its peers hold. None: nothing was reported."""
    mine = checkpoint_of(world, job)
    known = [mine.saved_step] if mine is not None else []
    if declares_elastic(job.comment):
        told = world.book.progress_of(job.key.job_id, job.uid, _held_ever(world, job), job.speaks_since)
        known += [record.progress_step for record in told]
    return max((step for step in known if step is not None), default=None)


def _held_ever(world: World, job: Job) -> set[str]:
    """Its nodes now and in the runs that were recovered."""
    runs = (r for r in world.book.recoveries.values() if r.uid == job.uid and job.continues(r.job))
    return {*job.nodes, *(n for r in runs for n in r.nodes_before)}
