"""Is the old run of a job on a dead node kept from writing? Pure.

A node that cannot be reached may still be training. Before the job writes elsewhere, the old run is fenced: the power is confirmed
off, or the job's checkpoint library refuses the writes of an older run."""

from __future__ import annotations

from holdfast.controller import facts
from holdfast.model import steps
from holdfast.model.book import World
from holdfast.model.cluster import ClusterView
from holdfast.model.incident import Incident


def unfenced_jobs(world: World, view: ClusterView, incident: Incident) -> tuple[int, ...]:
    """Jobs on a dead node whose old run could still write somewhere: neither is the power off, nor does their checkpoint library
    refuse an older run's writes."""
    if powered_off(world, incident):
        return ()
    open_jobs = []
    for job in view.jobs_on(incident.node):
        record = facts.checkpoint_of(world, job)
        if record is None or not record.fenced:
            open_jobs.append(job.key.job_id)
    return tuple(open_jobs)


def powered_off(world: World, incident: Incident) -> bool:
    """The provider has confirmed that the incident's machine is terminated."""
    done = facts.done(world.book.attempts(incident.id, steps.terminate(incident.instance_id)))
    return done is not None and done.result.get("state") == "terminated"
