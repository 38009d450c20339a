"""Filter for jobs' statements: an agent may name any job, so only known jobs count. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from holdfast.model.book import Book, CheckpointRecord, World
from holdfast.model.policies.lookback import UNSHOWN_JOB_S
from holdfast.model.slurm.cluster import ClusterView


class ShownJobs:
    """Jobs that Slurm shows, by node: computed once per view, however many agents report meanwhile. For one thread."""

    def __init__(self) -> None:
        self._view: ClusterView | None = None
        self._by_node: Mapping[str, frozenset[int]] = {}

    def on(self, world: World | None, node: str) -> frozenset[int] | None:
        """Jobs on the node, and jobs in recovery that had been on it; None: not known."""
        if world is None or world.view is None:
            return None
        if world.view is not self._view:
            self._view, self._by_node = world.view, _by_node(world.view)
        held = (r.job.job_id for r in world.book.recoveries.values() if node in r.nodes_before)
        return self._by_node.get(node, frozenset()).union(held)


def _by_node(view: ClusterView) -> Mapping[str, frozenset[int]]:
    """Node → job ids; a job of several components appears with all its ids on every node of any component."""
    found: dict[str, set[int]] = {}
    for job in view.jobs.values():
        ids = [part.key.job_id for part in job.components]
        for node in {*job.nodes, *(node for part in job.components for node in part.nodes)}:
            found.setdefault(node, set()).update(ids)
    return {node: frozenset(jobs) for node, jobs in found.items()}


def known_claims(book: Book, view: ClusterView | None, now: datetime) -> Mapping[int, Mapping[str, CheckpointRecord]]:
    """The state without jobs that Slurm does not show, that have no recovery and no recorded end, and that have reported nothing lately.

    ``view``: as Slurm has it, with each component of a job on its own."""
    if view is None:
        return book.checkpoints
    concerned = {r.job.job_id for r in book.recoveries.values()} | {end.job.job_id for end in book.ends.values()}
    since = now - timedelta(seconds=UNSHOWN_JOB_S)
    return {
        job: claims
        for job, claims in book.checkpoints.items()
        if job in view.jobs or job in concerned or any(_newest(claim) >= since for claim in claims.values())
    }


def _newest(claim: CheckpointRecord) -> datetime:
    times = (claim.registered_at, claim.progress_at, claim.saved_at, claim.resumed_at, claim.surveyed_at)
    return max((at for at in times if at is not None), default=datetime.min.replace(tzinfo=UTC))
