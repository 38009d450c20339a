"""Which jobs' statements count for anything: an agent may name any job. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from holdfast.model.book import Book, CheckpointRecord, World
from holdfast.model.cluster import ClusterView
from holdfast.model.lookback import UNSHOWN_JOB_S


def jobs_shown(world: World | None, node: str) -> frozenset[int] | None:
    """Jobs that Slurm shows on the node, those of recoveries that had been on it included; None: not known."""
    if world is None or world.view is None:
        return None
    jobs = world.view.jobs.values()
    held = (r.job.job_id for r in world.book.recoveries.values() if node in r.nodes_before)
    parts = (part.key.job_id for job in jobs for part in job.components if node in part.nodes or node in job.nodes)
    return frozenset((*parts, *held))


def known_claims(book: Book, view: ClusterView | None, now: datetime) -> Mapping[int, Mapping[str, CheckpointRecord]]:
    """Without jobs that Slurm does not show, that no recovery and no end concerns, and that have said nothing lately."""
    if view is None:
        return book.checkpoints
    parts = (part.key.job_id for job in view.jobs.values() for part in job.components)
    recovered = (r.job.job_id for r in book.recoveries.values())
    known = {*view.jobs, *parts, *recovered, *(end.job.job_id for end in book.ends.values())}
    return {
        job: claims
        for job, claims in book.checkpoints.items()
        if job in known or any(_newest(claim) >= now - timedelta(seconds=UNSHOWN_JOB_S) for claim in claims.values())
    }


def _newest(claim: CheckpointRecord) -> datetime:
    times = (claim.registered_at, claim.progress_at, claim.saved_at, claim.resumed_at, claim.surveyed_at)
    return max((at for at in times if at is not None), default=datetime.min.replace(tzinfo=UTC))
