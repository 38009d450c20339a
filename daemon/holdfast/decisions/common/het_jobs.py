"""A heterogeneous job as one job, through its leader. Pure.

Slurm keeps a record for each component, but stops, requeues and starts all of them together (``docs/slurm-notes.md``). Decisions see
one job under the leader's id, on the nodes of all components; :attr:`Job.parts` holds the records as Slurm shows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from holdfast.model.slurm.cluster import HOLDING_STATES, ClusterView, Job

_OLD_RUN = (HOLDING_STATES - {"COMPLETING"}) | {"FAILED", "NODE_FAIL"}


def whole_jobs(view: ClusterView) -> ClusterView:
    """The view with each heterogeneous job as one. Components of a leader that Slurm has forgotten stay as they are."""
    found: dict[int, list[Job]] = {}
    for job in view.jobs.values():
        leader = view.jobs.get(job.het_leader) if job.het_leader is not None else None
        if job.het_leader is not None and leader is not None and leader.uid == job.uid:
            found.setdefault(job.het_leader, []).append(job)
    if not found:
        return view
    parts = {p.key.job_id for components in found.values() for p in components}
    jobs = {number: job for number, job in view.jobs.items() if number not in parts}
    return replace(view, jobs=jobs | {leader: whole(components) for leader, components in found.items()})


def whole(components: Iterable[Job]) -> Job:
    """One job of its components: name, run and owner are the leader's, what it holds is what all of them hold."""
    leader, *others = sorted(components, key=lambda j: (j.key.job_id != j.het_leader, j.key.job_id))
    parts = (leader, *others)
    state = _state(leader, parts)
    holding = [p for p in parts if p.state in HOLDING_STATES] if state in HOLDING_STATES else parts
    limits = [p.time_limit_s for p in parts]
    return replace(
        leader,
        parts=parts,
        state=state,  # rule one-door: of a job
        requeue=all(p.requeue for p in parts),
        batch=all(p.batch for p in parts),
        exclusive=all(p.exclusive for p in parts),
        num_nodes=sum(p.num_nodes for p in parts),
        nodes=_union(p.nodes for p in holding),
        required_nodes=_union(p.required_nodes for p in parts),
        excluded_nodes=_union(p.excluded_nodes for p in parts),
        unreadable=" ".join(p.unreadable for p in parts if p.unreadable),
        exclusions_known=all(p.exclusions_known for p in parts),
        gpu_indices=_gpus(parts),
        shared_indices=_shares(parts),
        gpus_known=all(p.gpus_known for p in parts),
        end_time=_latest(p.end_time for p in parts),
        eligible_time=_latest(p.eligible_time for p in parts),
        time_limit_s=None if None in limits else max(limit for limit in limits if limit is not None),
    )


def stragglers(job: Job) -> tuple[Job, ...]:
    """Components left in the old run while the leader is in the queue again.

    A DOWN of the leader's only node requeues the leader alone (tried on 22.05): the others run on, or fail."""
    if not job.parts or job.parts[0].state != "PENDING":
        return ()
    return tuple(p for p in job.parts if _in_the_old_run(p, job.parts[0]))


def _in_the_old_run(part: Job, leader: Job) -> bool:
    """Restarts distinguish the runs: when all components restart, Slurm may show one running a moment before its leader."""
    return part.state in _OLD_RUN and part.restarts < leader.restarts


def _state(leader: Job, parts: tuple[Job, ...]) -> str:
    """The leader's, but COMPLETING as long as a component is still in the run that is over for the leader."""
    over = leader.state not in HOLDING_STATES
    behind = any(p.state in HOLDING_STATES for p in parts) if over else False
    failed = leader.state == "PENDING" and any(_in_the_old_run(p, leader) for p in parts)
    return "COMPLETING" if behind or failed or any(p.state == "COMPLETING" for p in parts) else leader.state


def _union(lists: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for names in lists for name in names))


def _gpus(parts: tuple[Job, ...]) -> dict[str, frozenset[int]]:
    held: dict[str, frozenset[int]] = {}
    for part in parts:
        for node, indices in part.gpu_indices.items():
            held[node] = held.get(node, frozenset()) | indices
    return held


def _shares(parts: tuple[Job, ...]) -> dict[str, dict[str, frozenset[int]]]:
    held: dict[str, dict[str, frozenset[int]]] = {}
    for part in parts:
        for node, kinds in part.shared_indices.items():
            mine = held.setdefault(node, {})
            mine.update({kind: mine.get(kind, frozenset()) | indices for kind, indices in kinds.items()})
    return held


def _latest(times: Iterable[datetime | None]) -> datetime | None:
    return max((t for t in times if t is not None), default=None)
