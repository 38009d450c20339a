"""Reservations that a job runs in, or that keep nodes from it. Pure."""

from __future__ import annotations

from datetime import timedelta

from holdfast.model.book import World
from holdfast.model.slurm.cluster import Job, Reservation


def reserved_by_its_user(world: World, job: Job) -> bool:
    """It runs in a reservation that is not one of ours."""
    return bool(job.reservation) and not _is_own(world, job.reservation)


def _is_own(world: World, reservation: str) -> bool:
    """A hold of a recovered job, or the spares' reservation."""
    return reservation in world.book.holds or reservation == world.policy.spare_reservation


def reserved_by_others(world: World, node: str, job: Job) -> bool:
    """Whether another reservation has the node at a time that the restarted job would reach: maintenance, a course, another group."""
    return any(node in r.nodes and not _is_own(world, r.name) for r in _in_the_way(world, job))


def kept_for_others(world: World, hold: str, job: Job) -> frozenset[str]:
    """Nodes that other reservations keep for a time that the job would reach, except those of the job's hold.

    Slurm keeps a job in a Holdfast hold off them, except in a hold of an earlier release, which has OVERLAP (docs/slurm-notes.md)."""
    kept = frozenset(n for r in _in_the_way(world, job) if r.name != hold for n in r.nodes)
    own = world.view.reservations.get(hold) if world.view is not None else None
    return kept - frozenset(own.nodes) if own is not None else kept


def _in_the_way(world: World, job: Job) -> list[Reservation]:
    """Reservations of a time that the job, started now, or its hold would reach."""
    reach_s = None if job.time_limit_s is None else max(job.time_limit_s, world.policy.job.hold_duration_s)
    until = None if reach_s is None else world.now + timedelta(seconds=reach_s)
    there = world.view.reservations.values() if world.view is not None else ()
    return [
        r
        for r in there
        if (r.end_time is None or r.end_time > world.now)
        and (r.start_time is None or until is None or r.start_time < until)
    ]
