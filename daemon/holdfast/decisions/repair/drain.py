"""Containment: which nodes are drained. Pure.

A fatal or degraded fault drains its node at once; a dead node is set DOWN under jobs that consent and whose old runs can do no harm. A node
that another user drained is left as it is: Holdfast does not overwrite its reason."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.decisions.common import attempted_steps, node_drains, node_incidents, slurm_view
from holdfast.decisions.common.may_stop_run import DeadNode, MayNotStop, may_stop_run, set_down
from holdfast.decisions.common.node_drains import DrainedBy
from holdfast.decisions.common.part import Part
from holdfast.decisions.death import fencing
from holdfast.decisions.nodes import hands_off, ordered_replacement, resumed, slurm_drains
from holdfast.model.actions import steps
from holdfast.model.actions.action import Drain, Intent, IntentState, Proposal, TakeOverDrain
from holdfast.model.book import World
from holdfast.model.ids import slurm_reason
from holdfast.model.incidents.incident import Incident, IncidentState, down_group
from holdfast.model.slurm.cluster import ClusterView

_CONTAINABLE = (
    IncidentState.OPEN,
    IncidentState.CONTAINED,
    IncidentState.REPAIRING,
    IncidentState.VALIDATING,
    IncidentState.AWAITING_HUMAN,
)

_NOT_AGAIN = frozenset({DrainedBy.OURS, DrainedBy.FOREIGN})
"""Drains that are not repeated. A node that Slurm itself set DOWN is drained as well, so that Holdfast may undrain it later."""
_FORGOTTEN = timedelta(seconds=3)
"""A view read this long after the drain shows it, if Slurm still knows of it."""
_DRAINS = 3
"""Most times that a drain that vanishes is set: another user who clears it does so on purpose."""


def contain(world: World) -> Part:
    view = slurm_view.fresh_view(world)
    if view is None:
        return Part()
    proposals = [
        proposal
        for incident in world.book.open_incidents()
        if node_incidents.acting(incident)
        and incident.state in _CONTAINABLE
        and incident.node in view.nodes
        and not _of_a_dropped_order(incident)
        and hands_off.holds(world, incident) is None
        and not (incident.state is IncidentState.OPEN and hands_off.nothing_left(world, incident))
        for proposal in _contain(world, view, incident)
    ]
    return Part(tuple(proposals))


def _of_a_dropped_order(incident: Incident) -> bool:
    """Its node has not been drained, and need not be."""
    return incident.state is IncidentState.OPEN and incident.only_ordered and incident.ordered is None


def _contain(world: World, view: ClusterView, incident: Incident) -> list[Proposal]:
    if incident.drain_lost_at is not None:
        return _again(world, view, incident, incident.drain_lost_at)
    if ordered_replacement.takes_over(incident, view.nodes[incident.node]):
        return _take_over(world, view, incident)
    if incident.state is IncidentState.VALIDATING:
        return []
    if incident.dead:
        down = _down(world, view, incident)
        if down or node_drains.drained_by(world, view.nodes[incident.node]) is not None or _under_way(world, incident):
            return down
    node = view.nodes[incident.node]
    slurms = slurm_drains.recognised(world, node) is not None
    if not incident.dead and (
        incident.state is not IncidentState.OPEN or (node_drains.drained_by(world, node) in _NOT_AGAIN and not slurms)
    ):
        return []
    if node_drains.drained_by(world, node) is DrainedBy.SLURM and not slurm_view.slurm_settled(world):
        return []
    if slurms and not slurm_drains.due(world, incident):
        return []
    step = steps.drain(incident.node)
    attempts = world.book.attempts(incident.id, step)
    if not world.may_follow(attempts) and not _lost(view, attempts):
        return []
    over = node.given_reason if slurms else None
    action = Drain(incident.node, slurm_reason(incident.id, incident.headline), over)
    return [Proposal(incident.id, step, action, f"{incident.severity.value}: {incident.headline}")]


def _take_over(world: World, view: ClusterView, incident: Incident) -> list[Proposal]:
    """An operator's drain that an order names becomes Holdfast's."""
    order, node = incident.ordered, view.nodes[incident.node]
    if order is None or not node_drains.drained_by_others(world, node):
        return []
    step = steps.take_over_drain(order.id, node.name)
    if not world.may_try(incident.id, step):
        return []
    action = TakeOverDrain(node.name, slurm_reason(incident.id, incident.headline), order.over)
    why = f"{order.who_and_why}; in the place of {node_drains.who_drained(world, node)}'s drain {node.reason!r}"
    return [Proposal(incident.id, step, action, why)]


def _again(world: World, view: ClusterView, incident: Incident, lost_at: datetime) -> list[Proposal]:
    """Another drain of a node whose drain slurmctld has forgotten. Never DOWN: the jobs there now started after the fault."""
    step = steps.drain(incident.node)
    attempts = tuple(i for i in world.book.attempts(incident.id, step) if i.planned_at >= lost_at)
    node = view.nodes[incident.node]
    if node.asleep or node_drains.drained_by(world, node) in _NOT_AGAIN or resumed.may_yet_speak(world, node):
        return []
    if not world.may_follow(attempts) and not _lost(view, attempts):
        return []
    action = Drain(incident.node, slurm_reason(incident.id, incident.headline))
    return [Proposal(incident.id, step, action, f"slurmctld forgot the drain of {incident.node}: {incident.headline}")]


def _under_way(world: World, incident: Incident) -> bool:
    """It is being set DOWN, or was, and Slurm does not show it yet: that drains it as well."""
    latest = attempted_steps.last(world.book.attempts(incident.id, steps.set_down(incident.node)))
    return latest is not None and (not latest.settled or latest.state is IntentState.DONE)


def _lost(view: ClusterView, attempts: tuple[Intent, ...]) -> bool:
    """Slurm took the drain and does not show it: a slurmctld that was killed forgets its last seconds."""
    done = attempted_steps.done(attempts)
    finished_at = done.finished_at if done is not None and done is attempted_steps.last(attempts) else None
    return finished_at is not None and view.read_at - finished_at > _FORGOTTEN and len(attempts) < _DRAINS


def _down(world: World, view: ClusterView, incident: Incident) -> list[Proposal]:
    """DOWN for a dead node under jobs that consent and are fenced (:mod:`fencing`), or one that Slurm itself has set DOWN, so that we may
    take it back. The others wait for Slurm; without jobs a drain is enough."""
    node = view.nodes[incident.node]
    step = steps.set_down(incident.node)
    if not world.may_try(incident.id, step):
        return []
    jobs = view.jobs_on(incident.node)
    may = may_stop_run(
        DeadNode(
            drained_by=node_drains.drained_by(world, node),
            down=node.down,
            slurm_settled=slurm_view.slurm_settled(world),
            runs=tuple(fencing.run_on(world, view, incident, job) for job in jobs),
        )
    )
    if isinstance(may, MayNotStop):
        return []
    action = set_down(
        may,
        incident.node,
        slurm_reason(incident.id, incident.headline),
        tuple(j.key.job_id for j in jobs),
        node_dead=True,
    )
    return [
        Proposal(
            incident.id,
            step,
            action,
            f"dead by two independent witnesses: {incident.headline}",
            order=50,
            group=down_group(incident.id),
        )
    ]
