"""Consent: why a job's run may be stopped before it fails. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.decisions.common import job_checkpoints
from holdfast.decisions.common.elastic_jobs import elastic_spec
from holdfast.model.book import World
from holdfast.model.incidents.incident import Ground
from holdfast.model.jobs.opt_in import OptInMeaning, read_comment
from holdfast.model.slurm.cluster import Job


@dataclass(frozen=True, slots=True)
class Consent:
    """Ground for stopping a run before it fails."""

    ground: Ground
    text: str
    """The same for people."""


FAILED = Consent(Ground.FAILED, "the job has already failed")
NODE_LOST = Consent(Ground.NODE_LOST, "the job has lost the node")


def consent(world: World, job: Job) -> Consent | None:
    """Consent to stop the job before it fails; None: there is none. ``JobRequeue=1`` is no consent. A suspended job is left alone: if
    requeued, Slurm holds it, and ``scontrol resume`` is refused (tried on 22.05)."""
    if job.suspended:
        return None
    if job_checkpoints.checkpoint_of(world, job) is not None:
        return Consent(Ground.CHECKPOINT, "registered checkpoint")
    if read_comment(job.comment).said is OptInMeaning.CONSENT:
        return Consent(Ground.OPT_IN, "job option")
    if elastic_spec(job) is not None:
        return Consent(Ground.ELASTIC, "elastic job")
    if all(part.partition in world.policy.job.consent_partitions for part in job.components):
        return Consent(Ground.PARTITION, f"policy of partition {job.partition}")
    if job.qos in world.policy.job.consent_qos:
        return Consent(Ground.QOS, f"policy of QOS {job.qos}")
    return None
