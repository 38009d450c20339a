"""Identity of the machine that serves a node: (node name, instance id, boot id, GPU UUIDs). Pure."""

from __future__ import annotations

from holdfast.decisions.common import attempted_steps, node_agents
from holdfast.decisions.machines import replacement
from holdfast.decisions.machines.disputes import claimed_elsewhere
from holdfast.decisions.repair import validation
from holdfast.model.actions import steps
from holdfast.model.agents.report import AgentView
from holdfast.model.book import Change, NodeRecord, World, rebooted
from holdfast.model.incidents.incident import Incident, IncidentKind


def follow_identity(world: World) -> Change:
    """Node records that have to change: a machine that reports for the first time, a new boot, a name handed over."""
    records: dict[str, NodeRecord] = {}
    for node, agents in world.agents.items():
        record = world.book.nodes.get(node)
        if record is not None and all(a.boot_id == record.boot_id for a in agents):
            continue  # nearly all of thousands
        heard = node_agents.agent_of(world, node)
        if heard is None or (record is not None and record.boot_id == heard.boot_id):
            continue
        if record is not None and record.instance_id == heard.instance_id:
            if (
                not record.gpu_uuids
            ):  # else the inventory of the new boot brings its id: the store accepts no other source
                records[node] = rebooted(record, heard.boot_id)
        elif _may_be_the_nodes(world, node, record, heard):
            records[node] = (record or NodeRecord(node)).of_machine(heard.instance_id, heard.boot_id)
    for incident in world.book.open_incidents():
        handed = _handed_over(world, incident)
        if handed is not None:
            records[incident.node] = handed
    return Change(nodes=tuple(records.values()))


def _may_be_the_nodes(world: World, node: str, record: NodeRecord | None, heard: AgentView) -> bool:
    """Whether a machine that reports under the node's name, and was not known as its machine, is accepted as it."""
    if claimed_elsewhere(world, node, heard.instance_id):
        return False  # a claim moves no machine away from the node that has it
    if record is None:
        return True
    if replacement.was_launched(world, heard.instance_id):
        return False  # it becomes the node by being assigned, never by being the only one that reports
    if world.frozen is not None:
        return False  # the machine that the node has may report in a moment
    alone = sum(not node_agents.is_silent(world, agent) for agent in world.agents.get(node, ())) == 1
    return alone and not _at_work(world, node)


def _at_work(world: World, node: str) -> bool:
    """Whether an incident is open on the node; one about a dispute of its machine's id does not count."""
    return any(i.kind is not IncidentKind.DISPUTED for i in world.book.open_on(node))


def _handed_over(world: World, incident: Incident) -> NodeRecord | None:
    """The new machine has taken the name: it is the node from now on."""
    launched = replacement.new_instance(world, incident)
    assigned = (
        launched is not None
        and attempted_steps.done(world.book.attempts(incident.id, steps.assign(launched))) is not None
    )
    new = launched if assigned else incident.machine
    uuids = validation.gpu_uuids(validation.validation(world, incident))
    record = world.book.nodes.get(incident.node)
    if not new or (record is not None and record.instance_id == new and (record.gpu_uuids or not uuids)):
        return None
    if not assigned and claimed_elsewhere(world, incident.node, new):
        return None
    agent = node_agents.agent_of(world, incident.node, new)
    if agent is None and not assigned:
        return None  # known only from the provider: the previous record is kept
    before = record or NodeRecord(incident.node)
    return before.of_machine(new, agent.boot_id if agent is not None else "", uuids)
