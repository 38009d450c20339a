"""The size of elastic jobs: the site's policy, and the steps that only it needs. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.model.slurm.cluster import JobKey
from holdfast.model.target import OnJob
from holdfast_checks.settings.option import option


@dataclass(frozen=True, slots=True)
class ElasticPolicy:
    """Table ``[elastic]``: when a job of replica groups grows and shrinks. Only jobs whose comment declares their sizes."""

    grow_after_idle_s: float = option(
        30.0,
        "A group that Slurm makes wait after its requeue may start once nodes for it have been idle for this long; "
        "groups that the next legal size needs, too.",
    )
    shrink_useless_after_s: float = option(
        120.0,
        "Groups beyond a legal size contribute nothing; they are asked to leave when they do not become useful within "
        "this.",
    )
    settle_s: float = option(
        30.0,
        "For this long after a group joined or left, no group is asked to leave; pause between two changes of the "
        "same kind.",
    )
    shrink_for_priority: bool = option(
        True,
        "Flexible groups make room for a pending job of higher priority that Slurm's own preemption does not serve.",
    )
    priority_wait_s: float = option(30.0, "How long to wait for Slurm to schedule that job on its own.")
    leave_drained_nodes: bool = option(
        False,
        "Groups on a node that an operator drained leave it after their step, as long as the least number of groups "
        "stays; without it, as Slurm means it, they continue until they end.",
    )
    leave_deadline_s: int = option(
        120, "A group that was asked to leave and is still there after this long is requeued."
    )


@dataclass(frozen=True, slots=True)
class DelayStart(OnJob):
    """Delay a pending run of an elastic job's elements: with them the job would have no legal size. Slurm ends the delay."""

    job: JobKey
    restarts: int
    delay_s: int


@dataclass(frozen=True, slots=True)
class SetThrottle(OnJob):
    """Number of elements of an elastic job's flexible array that may run at a time."""

    job: JobKey
    """A record of the array: proof that the id still means it."""
    array_job_id: int
    most: int | None
    """None: as many as there are."""
