"""Incidents whose machine, or what was found on it, no longer serves the node (:mod:`serving_now`). Pure."""

from __future__ import annotations

from holdfast.controller import facts, serving_now
from holdfast.model.action import Drain, IntentState, SetDown, Terminate
from holdfast.model.book import World
from holdfast.model.incident import Incident, IncidentKind
from holdfast.model.transitions import Moved, close


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
