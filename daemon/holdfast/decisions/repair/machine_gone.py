"""Incidents whose machine or faulty part no longer serves the node (:mod:`serving_now`). Pure."""

from __future__ import annotations

from dataclasses import replace

from holdfast.decisions.common import node_agents, node_drains, slurm_view
from holdfast.decisions.common.node_drains import DrainedBy
from holdfast.decisions.machines import replacement, serving_now
from holdfast.decisions.nodes import ordered_replacement
from holdfast.decisions.repair import ladder, repair_progress
from holdfast.model.actions.action import Drain, IntentState, Replace, SetDown, Terminate
from holdfast.model.book import World
from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState
from holdfast.model.incidents.transitions import Moved, close, move, returned
from holdfast.model.slurm.cluster import ClusterView


def no_longer_serves(world: World, incident: Incident) -> Moved | None:
    """Close an incident on which no action was taken and whose findings are not of the machine, boot or GPU that serves now. None: they
    are, or this is not known."""
    if incident.dead or not of_a_machine(incident):
        return None
    if serving_now.nothing_holds(world, incident):
        return close(incident, world.now, f"{_WAS_FOUND_ON}: nothing of it holds of what serves {incident.node} now")
    if not serving_now.nothing_holds(world, incident, events_too=True):
        return None
    if _out_of_service(world, incident) or _repeats(world, incident):
        return None  # it is drained, or what Slurm set DOWN taken over, proves itself and is returned
    after, events = close(incident, world.now, f"{_WAS_FOUND_ON}: in the boot that serves now all checks pass")
    return after, [*outage(world, incident), *events]


def of_a_machine(incident: Incident) -> bool:
    """About what was found on a machine, of which no date is announced."""
    return incident.kind in _FOUND_ON_A_MACHINE


def _out_of_service(world: World, incident: Incident) -> bool:
    node = world.view.nodes.get(incident.node) if world.view is not None else None
    return node is None or node.out_of_service


def _repeats(world: World, incident: Incident) -> bool:
    """The node had another fault within a day, or is a lemon: that it passes after a reboot is no proof."""
    window_s = world.policy.repair.climb_window_s
    earlier = ladder.earlier_faults(world, incident, window_s)
    return bool(earlier) or world.background.lemon(incident.node, world.now)


def outage(world: World, incident: Incident) -> list[Event]:
    """For the node's history: its fault did take it out of service, as long as slurmctld had it DOWN. Empty: it was not seen DOWN."""
    seen = world.seen_down.get(incident.node)
    if seen is None:
        return []
    text = "out of service: DOWN by slurmctld, while nothing was done about the fault"
    out = Event(seen.since, EventKind.NODE_OUT, incident.id, incident.node, text=text, detail={"by": DrainedBy.SLURM})
    return [out, returned(incident.node, incident.id, seen.last, by_others=True)]


_FOUND_ON_A_MACHINE = frozenset({IncidentKind.FAULT, IncidentKind.PAIR})
_WAS_FOUND_ON = "found on a machine, boot or GPU that no longer serves"


def of_another_machine(world: World, incident: Incident) -> bool:
    """Whether the node has another machine by now, and the one with the fault does not report (one under test would)."""
    if serving_now.successor(world, incident) is not None:
        return True
    record = world.book.nodes.get(incident.node)
    serves = record.instance_id if record is not None else ""
    other = bool(serves and incident.instance_id and serves != incident.instance_id)
    return other and world.frozen is None and node_agents.agent_of(world, incident.node, incident.instance_id) is None


def begun(world: World, incident: Incident) -> bool:
    """Whether the node, or its machine, may have been taken already."""
    return any(
        isinstance(i.action, Drain | SetDown | Terminate) and i.state in (IntentState.STARTED, IntentState.DONE)
        for i in world.book.intents_of(incident.id)
    )


_OUT = frozenset({IncidentState.CONTAINED, IncidentState.REPAIRING, IncidentState.VALIDATING})


def exchanged(world: World, view: ClusterView, incident: Incident) -> Moved | None:
    """Validate a machine that someone else put in the place of the node's while it was out of service for the incident; steps started on
    the old one are over. None: no one did, or it is not known yet."""
    node = view.nodes[incident.node]
    if (
        incident.state not in _OUT
        or not node_drains.drained_by_us(world, node)
        or not slurm_view.free_of_jobs(view, incident.node)
    ):
        return None
    other = serving_now.successor(world, incident)
    started_at = node.slurmd_start_time
    its_slurmd = node.registered and node.responding and started_at is not None and started_at >= incident.opened_at
    if other is None or not its_slurmd or _exchanges_in_place(world, incident):
        return None
    if incident.only_ordered and incident.order is not None and incident.order.over is not None:
        return None  # another operator had drained it: theirs to return
    why = f"another machine serves {incident.node} now, not by Holdfast's doing: {other} in place of {incident.serving_id}"
    if incident.ordered is not None:
        incident = ordered_replacement.dropped_for(incident, why)
    new = replace(repair_progress.attempt_over(incident), machine=other, rung="", dead=False, validated_at=None)
    return move(new, IncidentState.VALIDATING, world.now, f"{why}; it is tested, then returned")


def _exchanges_in_place(world: World, incident: Incident) -> bool:
    """Whether an order to exchange the machine may have been carried out: the machine that reports now is its result."""
    if incident.state is not IncidentState.REPAIRING:
        return False
    begun_states = (IntentState.STARTED, IntentState.DONE, IntentState.FAILED)
    return any(
        isinstance(i.action, Replace) and i.state in begun_states for i in repair_progress.attempts(world, incident)
    )


def brought_by_others(world: World, incident: Incident) -> bool:
    """The machine under validation was put there by another hand (:func:`exchanged`): if it fails, an operator decides."""
    machine = incident.machine
    return bool(machine) and not incident.rung and machine not in replacement.made(world, incident)
