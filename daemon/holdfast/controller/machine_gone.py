"""Incidents whose machine, or what was found on it, no longer serves the node (:mod:`serving_now`). Pure."""

from __future__ import annotations

from dataclasses import replace

from holdfast.controller import facts, replacement, rungs, serving_now
from holdfast.model.action import Drain, IntentState, Replace, SetDown, Terminate
from holdfast.model.book import World
from holdfast.model.cluster import ClusterView
from holdfast.model.incident import Incident, IncidentKind, IncidentState
from holdfast.model.transitions import Moved, close, move


def no_longer_serves(world: World, incident: Incident) -> Moved | None:
    """Before anything was done about it, what was found is not of the machine, boot or GPU that serves now. None: it is, or this cannot be
    told."""
    if incident.dead or incident.kind not in _FOUND_ON_A_MACHINE:
        return None
    if not serving_now.nothing_holds(world, incident):
        return None
    return close(incident, world.now, f"{_WAS_FOUND_ON}: nothing of it holds of what serves {incident.node} now")


_FOUND_ON_A_MACHINE = frozenset({IncidentKind.FAULT, IncidentKind.PAIR})
_WAS_FOUND_ON = "found on a machine, boot or GPU that no longer serves"


def of_another_machine(world: World, incident: Incident) -> bool:
    """The node has another machine by now, and the one that it was seen on is not heard (as one under test would be)."""
    if serving_now.successor(world, incident) is not None:
        return True
    record = world.book.nodes.get(incident.node)
    serves = record.instance_id if record is not None else ""
    other = bool(serves and incident.instance_id and serves != incident.instance_id)
    return other and facts.agent_of(world, incident.node, incident.instance_id) is None


def begun(world: World, incident: Incident) -> bool:
    """Whether the node, or its machine, may have been taken already."""
    return any(
        isinstance(i.action, Drain | SetDown | Terminate) and i.state in (IntentState.STARTED, IntentState.DONE)
        for i in world.book.intents_of(incident.id)
    )


_OUT = frozenset({IncidentState.CONTAINED, IncidentState.REPAIRING, IncidentState.VALIDATING})


def exchanged(world: World, view: ClusterView, incident: Incident) -> Moved | None:
    """Another hand put another machine in the place of the node's while it was out of service for the incident: that one proves itself, and
    what was begun at the one before is over. None: no one did, or it cannot be told yet."""
    node = view.nodes[incident.node]
    if (
        incident.state not in _OUT
        or not facts.drained_by_us(world, node)
        or not facts.free_of_jobs(view, incident.node)
    ):
        return None
    other = serving_now.successor(world, incident)
    started_at = node.slurmd_start_time
    its_slurmd = node.registered and node.responding and started_at is not None and started_at >= incident.opened_at
    if other is None or not its_slurmd or _exchanges_in_place(world, incident):
        return None
    new = replace(rungs.attempt_over(incident), machine=other, rung="", dead=False, validated_at=None)
    why = f"another machine serves {incident.node} now, not by Holdfast's doing: {other} in place of {incident.serving_id}"
    return move(new, IncidentState.VALIDATING, world.now, f"{why}; validated, returned")


def _exchanges_in_place(world: World, incident: Incident) -> bool:
    """An order to exchange the machine may have been carried out: what reports now is what came of it."""
    if incident.state is not IncidentState.REPAIRING:
        return False
    begun_states = (IntentState.STARTED, IntentState.DONE, IntentState.FAILED)
    return any(isinstance(i.action, Replace) and i.state in begun_states for i in rungs.attempts(world, incident))


def brought_by_others(world: World, incident: Incident) -> bool:
    """The machine under validation was put there by another hand (:func:`exchanged`): if it fails, an operator decides."""
    machine = incident.machine
    return bool(machine) and not incident.rung and machine not in replacement.made(world, incident)
