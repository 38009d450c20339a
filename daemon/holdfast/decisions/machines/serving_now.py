"""Relation of a finding to the machine, boot and GPUs that serve its node now. Pure.

A state (sticky) that was found on a machine which no longer serves the node, or on a board that was exchanged, is no ground for a drain, a
job stop or a step at a machine: an agent that was installed again does not know of it, and so never clears it. The report of the node's
only reporting agent decides; if two machines report, or none, the finding holds."""

from __future__ import annotations

from enum import StrEnum

from holdfast.decisions.common import node_agents, node_incidents
from holdfast.decisions.machines import replacement
from holdfast.decisions.machines.disputes import claimed_elsewhere
from holdfast.model.agents.report import AgentView, Finding
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident


class GonePart(StrEnum):
    """Part named by a finding that no longer serves the node."""

    MACHINE = "machine"
    """Another machine reports, by its instance id."""
    GPU = "gpu"
    """The same machine has other GPUs in place of this one, by its inventories."""
    BOOT = "boot"
    """In another boot every check that applies has answered OK."""


def successor(world: World, incident: Incident) -> str | None:
    """Machine that serves the incident's node in place of the one with the fault, as the only agent that reports there shows; None: it is
    the same one, Holdfast launched it (the repair handles that), or it is not known."""
    agent = _only_agent(world, incident)
    before = {incident.instance_id, incident.serving_id} - {""}
    if agent is None or not before or agent.instance_id in before | {""}:
        return None
    return None if claimed_elsewhere(world, incident.node, agent.instance_id) else agent.instance_id


def _only_agent(world: World, incident: Incident) -> AgentView | None:
    """The node's agent, where one machine alone reports, but for those that a ladder launched and that do not serve yet. None as well
    while this controller has just started: another machine may report in a moment."""
    if world.frozen is not None:
        return None
    made = replacement.made(world, incident)
    record = world.book.nodes.get(incident.node)
    serves = record.instance_id if record is not None else ""
    heard = [a for a in world.agents.get(incident.node, ()) if not node_agents.is_silent(world, a)]
    own = [
        a
        for a in heard
        if a.instance_id not in made and (a.instance_id == serves or not replacement.was_launched(world, a.instance_id))
    ]
    return own[0] if len(own) == 1 and not replacement.launching(world, incident.node) else None


def gone(world: World, incident: Incident, finding: Finding) -> GonePart | None:
    """Part that a finding of the incident names and that no longer serves the node; None: it still serves, or this is not known."""
    agent = _only_agent(world, incident)
    if agent is None:
        return None
    if finding.instance_id and finding.instance_id != agent.instance_id:
        return GonePart.MACHINE if successor(world, incident) else None
    if finding.boot_id in ("", agent.boot_id):
        return None
    record = world.book.nodes.get(finding.node)
    named = {finding.gpu_uuid, finding.component}
    if record is not None and record.instance_id == agent.instance_id and named & record.exchanged_gpus:
        return GonePart.GPU
    return GonePart.BOOT if agent.all_ok else None


def nothing_holds(world: World, incident: Incident, *, events_too: bool = False) -> bool:
    """Whether nothing that was found holds of what serves the node now. ``events_too``: a boot in which all is well is enough for an event
    (an Xid) as well, since the node will prove itself; otherwise an event ends with its machine or GPU alone."""
    mine = node_incidents.findings_of(world, incident)
    if not mine:
        return successor(world, incident) is not None
    return all(f.cleared_at is not None or over(world, incident, f, events_too=events_too) for f in mine)


def over(world: World, incident: Incident, finding: Finding, *, events_too: bool = False) -> bool:
    """:func:`nothing_holds`, of one finding."""
    why = gone(world, incident, finding)
    return why is not None and (why is not GonePart.BOOT or finding.sticky or events_too)


def may_yet_clear(world: World, incident: Incident) -> bool:
    """A state was found in an earlier boot, and the agent has neither found it in this one nor reported all of its checks yet."""
    agent = _only_agent(world, incident)
    return agent is not None and any(
        f.sticky
        and f.cleared_at is None
        and f.boot_id not in ("", agent.boot_id)
        and f.instance_id in ("", agent.instance_id)
        and not agent.fails(f.check)
        and not agent.all_ok
        for f in node_incidents.findings_of(world, incident)
    )
