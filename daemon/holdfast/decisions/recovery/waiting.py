"""Reason why a recovered job waits in the queue, for its owner and for operators. Pure."""

from __future__ import annotations

from holdfast.model.incidents.incident import Recovery
from holdfast.model.slurm.cluster import Job

_FEW = 8
_WORDS = {
    "JobHeldUser": "held; its owner can release it: scontrol release {job}",
    "job_requeued_in_held_state": "held; its owner can release it: scontrol release {job}",
    "JobHeldAdmin": "held by an operator, or by Slurm in an operator's name; only an operator can release it: scontrol release {job}",
    "Resources": "waits for nodes: too few of those that fit are free",
    "Priority": "waits for nodes: jobs of a higher priority come first",
    "ReqNodeNotAvail": "waits for nodes: those that fit are out of service, reserved or in use",
    "Dependency": "waits for another job",
    "BeginTime": "waits for its start time, which Slurm sets two minutes ahead, by default, when a job is requeued",
    "DependencyNeverSatisfied": "waits for another job that ended otherwise, so it never starts: scontrol update jobid={job} Dependency=",
}
"""Slurm's own reasons that people need not know."""


def added_exclusions(recovery: Recovery, job: Job) -> tuple[str, ...]:
    """Nodes on the job's list in addition to the user's own exclusions. Before these were read: those that an earlier recovery added; if
    the list cannot be read now, those known to have been added."""
    if not job.exclusions_known:
        return recovery.excluded_added
    if not recovery.exclusions_known:
        return tuple(n for n in recovery.excluded_added if n in job.excluded_nodes)
    return tuple(n for n in job.excluded_nodes if n not in recovery.excluded_before)


def why(job: Job, recovery: Recovery | None) -> str:
    """One sentence, with Slurm's own reason if it gives another one. ``recovery``: of the run before; None: there was none."""
    slurm = job.reason.partition(",")[0]  # rule prose: Slurm's own words, which are shown in others
    if job.fits_nowhere:
        return f"no node fits ({slurm}): {_fits_nowhere(job, recovery)}"
    words = _WORDS.get(slurm)
    return f"pending: {job.reason}" if words is None else f"{words.format(job=job.shown_id)} ({slurm})"


def _fits_nowhere(job: Job, recovery: Recovery | None) -> str:
    ours = added_exclusions(recovery, job) if recovery is not None else ()
    if not ours:
        return (
            f"Slurm knows no node of partition {job.partition} that has what the job asks for and that its user has not excluded "
            f"(scontrol show job {job.shown_id}: Features, TRES, ExcNodeList, Reservation)"
        )
    names = ",".join(ours) if len(ours) <= _FEW else f"{len(ours)} nodes"
    return f"Holdfast keeps it off {names}, which may be faulty, and no other node fits; it starts once one of these is in service again"
