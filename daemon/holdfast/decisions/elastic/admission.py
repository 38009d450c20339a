"""Admission of a running job to a rendezvous: requested by its node's agent, decided by what Slurm shows. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from holdfast.decisions.common.elastic_jobs import ElasticJob, ReplicaGroup
from holdfast.model.elastic_jobs.elastic import ElasticSpec, declares_elastic, parse_comment
from holdfast.model.elastic_jobs.sizes import BadSizes
from holdfast.model.slurm.cluster import ClusterView, Job


class AdmissionReason(StrEnum):
    NOT_YET = "not_yet"
    """Slurm may show it in a moment: read Slurm, and ask again."""
    LATER = "later"
    """Ask again, but no reading of Slurm is due for this question: it would hardly show that run. Any user can ask for any run."""
    NEVER = "never"
    """Slurm shows that this run has no rendezvous, and asking again will not change that."""


@dataclass(frozen=True, slots=True)
class AdmissionRefusal:
    why: AdmissionReason
    line: str


@dataclass(frozen=True, slots=True)
class Admission:
    job: ElasticJob
    group: ReplicaGroup


@dataclass(frozen=True, slots=True)
class RendezvousRequest:
    """Request of an agent; it has the caller's identity from the kernel and slurmd."""

    node: str
    """Node of the agent's token."""
    job_id: int
    uid: int
    restarts: int


def admit(view: ClusterView, elastic: Iterable[ElasticJob], asked: RendezvousRequest) -> Admission | AdmissionRefusal:
    """``elastic``: the elastic jobs of this view (``groups.elastic_jobs``)."""
    job = view.jobs.get(asked.job_id)
    if job is None:
        return AdmissionRefusal(AdmissionReason.NOT_YET, f"Slurm does not show job {asked.job_id} yet")
    refusal = _not_this_run(job, asked)
    if refusal is not None:
        return refusal
    spec = _declared(job)
    if isinstance(spec, AdmissionRefusal):
        return spec
    base = job.array_job_id if spec.of is None else spec.of
    whole = next((e for e in elastic if e.base_array_id == base and e.uid == job.uid), None)
    if whole is None or not _base_lives(whole):
        text = f"{base} is no living base array of an elastic job of user {job.user}"
        return AdmissionRefusal(AdmissionReason.NEVER, f"job {asked.job_id}: {text}")
    group = next((g for g in whole.groups if g.job.key.job_id == asked.job_id), None)
    if group is None:
        text = f"task id {job.array_task_id} is none of elastic={whole.sizes.text}, or a newer element has it"
        return AdmissionRefusal(AdmissionReason.NEVER, f"job {asked.job_id}: {text}")
    return Admission(whole, group)


def _not_this_run(job: Job, asked: RendezvousRequest) -> AdmissionRefusal | None:
    number = asked.job_id
    if job.uid != asked.uid:
        return AdmissionRefusal(AdmissionReason.NEVER, f"job {number} is not user {asked.uid}'s")
    if job.restarts > asked.restarts:
        return AdmissionRefusal(
            AdmissionReason.NEVER,
            f"job {number}: the run with restarts={asked.restarts} is over, Slurm shows {job.restarts}",
        )
    if job.restarts < asked.restarts or job.state != "RUNNING":
        return AdmissionRefusal(
            _when(job, asked), f"job {number} is {job.state} with restarts={job.restarts}, as Slurm shows it now"
        )
    if asked.node not in job.nodes:
        return AdmissionRefusal(
            _when(job, asked), f"job {number} does not run on node {asked.node}, as Slurm shows it now"
        )
    return None


def _when(job: Job, asked: RendezvousRequest) -> AdmissionReason:
    """One more reading may show this run where it is the one that is shown, or the next, of a group of an elastic job."""
    is_next = asked.restarts in (job.restarts, job.restarts + 1)
    return AdmissionReason.NOT_YET if is_next and declares_elastic(job.comment) else AdmissionReason.LATER


def _declared(job: Job) -> ElasticSpec | AdmissionRefusal:
    number = job.key.job_id
    try:
        spec = parse_comment(job.comment)
    except BadSizes as error:
        return AdmissionRefusal(AdmissionReason.NEVER, f"job {number}: {error}")
    if spec is None:
        return AdmissionRefusal(
            AdmissionReason.NEVER, f"job {number} is not elastic: its comment declares no elastic=MIN:MAX"
        )
    if job.array_job_id is None or job.array_task_id is None:
        return AdmissionRefusal(
            AdmissionReason.NEVER, f"job {number} is no job array's element: an elastic job is one array or two"
        )
    kind, indices = ("base", spec.base_indices) if spec.of is None else ("flexible", spec.flexible_indices)
    if job.array_task_id not in indices:
        shown = f"{indices.start} to {indices.stop - 1}" if indices else "none"
        text = f"task id {job.array_task_id}, but the {kind} array of elastic={spec.sizes.text} has {shown}"
        return AdmissionRefusal(AdmissionReason.NEVER, f"job {number}: {text}")
    return spec


def _base_lives(whole: ElasticJob) -> bool:
    return any(not g.over for g in whole.groups if g.job.array_job_id == whole.base_array_id)
