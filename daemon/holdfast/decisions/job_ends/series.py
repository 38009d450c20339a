"""Jobs that run one program: the elements of an array, and one user's submissions of one script. Pure.

Nodes that break under one of them and then under another count against the program as if it had been one job
(:mod:`holdfast.decisions.recovery.restart_budget`). Never of two users: a job counts only for jobs of its user, whatever its name and
folder are."""

from __future__ import annotations

from holdfast.model.book import World
from holdfast.model.incidents.incident import Recovery
from holdfast.model.slurm.cluster import Job

UNNAMED = frozenset({"", "wrap", "sbatch", "bash", "sh", "interactive"})
"""Names that Slurm gives to a script without one (``--wrap``, standard input), and those of shells: they do not identify the program."""


def series_of(job: Job) -> tuple[str, ...]:
    """Keys that the job shares with every other run of its program: its array, and its script's name with the folder it was submitted
    in. A name alone is shared by unrelated jobs (``train.sh``)."""
    keys = [] if job.array_job_id is None else [f"array {job.array_job_id}"]
    if job.name not in UNNAMED and job.work_dir:
        keys.append(f"script {job.name} in {job.work_dir}")
    return tuple(keys)


def related(one: Recovery, other: Recovery) -> bool:
    """Whether both are about runs of one job, or of jobs of one user that run one program."""
    if (one.job.cluster, one.uid) != (other.job.cluster, other.uid):
        return False
    return one.job.job_id == other.job.job_id or not set(one.series).isdisjoint(other.series)


def nodes_of(world: World, recovery: Recovery) -> int:
    """Number of nodes that jobs of its program have now; its own count as before the fault."""
    jobs = world.view.jobs.values() if world.view is not None else ()
    others = (
        len(job.nodes)
        for job in jobs
        if job.uid == recovery.uid
        and job.key.job_id != recovery.job.job_id
        and not set(series_of(job)).isdisjoint(recovery.series)
    )
    return len(recovery.nodes_before) + sum(others)
