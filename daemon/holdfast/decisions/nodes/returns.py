"""Returns to service after the end of an incident: the measured end of the outage. Pure."""

from __future__ import annotations

from dataclasses import replace

from holdfast.decisions.common import attempted_steps, slurm_view
from holdfast.model.actions import steps
from holdfast.model.book import Change, NodeRecord, World
from holdfast.model.event import Event
from holdfast.model.incidents.incident import Incident
from holdfast.model.incidents.transitions import returned
from holdfast.model.slurm.cluster import ClusterView


def at_the_end(world: World, view: ClusterView | None, incident: Incident) -> Event | NodeRecord:
    """Result for an incident that took its node out and ends in this turn: the event of the node's return, by Holdfast or by others, or its
    record, which notes that the return is still to come."""
    node = view.nodes.get(incident.node) if view is not None else None
    if node is None or node.out_of_service:
        record = world.book.nodes.get(incident.node) or NodeRecord(incident.node)
        return replace(record, out_for=incident.id)
    ours = attempted_steps.done(world.book.attempts(incident.id, steps.undrain(incident.node)))
    at = ours.finished_at if ours is not None else None  # Slurm had answered by then; the view is read a little later
    return returned(incident.node, incident.id, at or world.now, by_others=ours is None)


def follow_returns(world: World) -> Change:
    """Nodes that were out of service when their incident ended, and serve by now: others put them back."""
    view = slurm_view.fresh_view(world)
    waiting = [r for r in world.book.nodes.values() if r.out_for and view is not None and r.name in view.nodes]
    back = [r for r in waiting if view is not None and not view.nodes[r.name].out_of_service]
    return Change(
        nodes=tuple(replace(r, out_for="") for r in back),
        events=tuple(returned(r.name, r.out_for, world.now, by_others=True) for r in back),
    )
