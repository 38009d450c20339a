"""Holds for recovered jobs: the nodes of a hold, and how many holds a user may have. Pure.

A hold blocks its nodes for every other job, so it includes no node that something else keeps, and the holds per user and hour are
limited."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from holdfast.decisions.common import node_incidents
from holdfast.decisions.common.budgets import COUNTED
from holdfast.model.actions.action import HoldNodes, Proposal
from holdfast.model.book import World
from holdfast.model.incidents.incident import Recovery, RecoveryPhase
from holdfast.model.policies.lookback import BRAKE_LONG_S
from holdfast.model.slurm.cluster import ClusterView, Job

_NOT_MADE_YET = frozenset({RecoveryPhase.STOPPING, RecoveryPhase.RESTARTING})


def of_other_holds(view: ClusterView, job: Job, recoveries: Iterable[Recovery]) -> frozenset[str]:
    """Nodes in the holds of other jobs, which share them with this one. Slurm makes no hold over another, and starts no job of one on a
    node of the other; a node outside of its hold the job may use as any other."""
    found: set[str] = set()
    for recovery in recoveries:
        if recovery.hold is None or recovery.job.job_id == job.key.job_id:
            continue
        made = view.reservations.get(recovery.hold)
        if made is not None:
            found |= set(made.nodes)
        elif recovery.phase in _NOT_MADE_YET:
            found |= {*recovery.nodes_before, *([recovery.spare] if recovery.spare is not None else [])}
    return frozenset(found)


def too_many(world: World, user: str, proposals: Iterable[Proposal]) -> str | None:
    """Reason why the user's next job restarts without a hold; None: it gets one. ``proposals``: of this cycle."""
    most, since = world.policy.job.holds_per_user_60min, world.now - timedelta(seconds=BRAKE_LONG_S)
    made = {
        (i.incident_id, i.step)
        for i in world.book.intents.values()
        if isinstance(i.action, HoldNodes) and i.action.user == user and i.state in COUNTED and i.planned_at > since
    }
    made |= {(p.incident_id, p.step) for p in proposals if isinstance(p.action, HoldNodes) and p.action.user == user}
    if len(made) < most:
        return None
    return (
        f"restarted without a hold of its nodes and without a spare: {len(made)} jobs of {user} were given one within an hour, "
        f"the limit is {most} (jobs.holds_per_user_60min); it waits for nodes like any other job"
    )


def survivors(world: World, view: ClusterView, job: Job) -> tuple[str, ...]:
    """The job's nodes that may serve it again."""
    suspects = node_incidents.suspect_nodes(world)
    return tuple(n for n in job.nodes if n not in suspects and n in view.nodes and not view.nodes[n].out_of_service)
