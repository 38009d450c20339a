"""Machines in dispute: an instance id that two nodes claim, or that the provider shows elsewhere. Pure.

An agent reports its own machine's id, and may lie or be misconfigured. While two nodes claim one id no step that ends, stops, reboots,
exchanges or renames a machine is taken for the one that only claims it. Nor for the node that has it in the record, unless that node's own
agent still reports it, or it is off: then only the other node is affected by the claim, and the provider is asked right before each step
(docs/decisions/0015). An operator is notified of both. Faults are recorded, nodes drained and jobs recovered as usual: those steps use the
node's name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.decisions.common import node_agents
from holdfast.decisions.common.once import once_per_world
from holdfast.decisions.death import evidence
from holdfast.decisions.machines import replacement
from holdfast.decisions.machines.machine_proof import disputed_node
from holdfast.model.actions.action import (
    Action,
    Assign,
    IntentState,
    Launch,
    Reboot,
    Replace,
    ReportFault,
    SendOrder,
    StopStart,
    Terminate,
    Verb,
)
from holdfast.model.book import Book, Change, World
from holdfast.model.event import Event
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState
from holdfast.model.incidents.transitions import NewIncident, close, open_incident
from holdfast.model.policies.lookback import STEP_HOUR_S
from holdfast_checks.result import Remedy, Severity

CHECK = "node.machine"
"""Check of the incident, as it is shown."""
_BY_ID = (Terminate, Assign, Replace, Reboot, StopStart, ReportFault)
_BY_NODE = (Launch, Assign, Replace, Reboot, StopStart)


@dataclass(frozen=True, slots=True)
class Dispute:
    """One machine and the nodes that claim it, the one that has it by the store first."""

    instance_id: str
    nodes: tuple[str, ...]
    settled: bool = False
    """The owner of the machine is certain: the first node. The others only claim it."""

    @property
    def held(self) -> tuple[str, ...]:
        """The nodes whose machines are left alone."""
        return self.nodes[1:] if self.settled else self.nodes

    @property
    def text(self) -> str:
        """One line that names the machine and both nodes."""
        owner, *others = self.nodes
        return f"{self.instance_id} is claimed by {' and '.join(others)}, and is {owner}'s machine by the record"


def claimants(book: Book, instance_id: str) -> frozenset[str]:
    """Nodes whose machine has this id by the store: by their record, or by what an open incident of theirs is about."""
    if not instance_id:
        return frozenset()
    recorded = {name for name, record in book.nodes.items() if record.instance_id == instance_id}
    accused = {i.node for i in book.open_incidents() if instance_id in (i.instance_id, i.machine)}
    return frozenset(recorded | accused)


@dataclass(frozen=True, slots=True)
class _Claim:
    instance_id: str
    node: str
    proved: bool
    """Not only reported by an agent: known from the node's record, the provider's hand-over, or the actor's check right before a step."""


@once_per_world
def disputes(world: World) -> Mapping[str, Dispute]:
    """Instance id → dispute. Nodes that Slurm no longer has claim nothing: a node that was renamed keeps its machine."""
    claims: dict[str, list[_Claim]] = {}
    for claim in _claims(world):
        claims.setdefault(claim.instance_id, []).append(claim)
    found: dict[str, Dispute] = {}
    for instance_id, mine in claims.items():
        nodes = tuple(dict.fromkeys(claim.node for claim in mine))
        if len(nodes) > 1:
            proved = {claim.node for claim in mine if claim.proved}
            settled = proved == {nodes[0]} and _serves_or_is_off(world, nodes[0], instance_id)
            found[instance_id] = Dispute(instance_id, nodes, settled)
    return found


def _claims(world: World) -> Iterator[_Claim]:
    """The records first, then what agents report now, what open incidents are about, and what the actor found."""
    known = world.view.nodes if world.view is not None else None
    for name, record in world.book.nodes.items():
        if record.instance_id and (known is None or name in known):
            yield _Claim(record.instance_id, name, proved=True)
    for name, agents in world.agents.items():
        mine = world.book.nodes.get(name)
        for agent in agents:
            recorded = mine is not None and mine.instance_id == agent.instance_id
            if recorded or not agent.instance_id or node_agents.is_silent(world, agent):
                continue
            if known is None or name in known:
                yield _Claim(agent.instance_id, name, proved=False)
    for incident in world.book.open_incidents():
        if known is None or incident.node in known:
            yield from _of_incident(world, incident)


def _of_incident(world: World, incident: Incident) -> Iterator[_Claim]:
    if incident.kind is not IncidentKind.DISPUTED:
        if incident.serving_id:
            yield _Claim(incident.serving_id, incident.node, proved=bool(incident.machine))
        yield from _found_by_the_actor(world, incident)
    elif world.frozen is not None:  # the controller has just started: the agent that claims it may report in a moment
        yield _Claim(incident.instance_id, incident.node, proved=False)


def _serves_or_is_off(world: World, node: str, instance_id: str) -> bool:
    """The node's own agent reports the machine now; or it is off, so that it can be no reporting agent's."""
    if any(a.instance_id == instance_id and not node_agents.is_silent(world, a) for a in world.agents.get(node, ())):
        return True
    mine = (i for i in world.book.open_on(node) if i.serving_id == instance_id)
    return replacement.terminated(world, instance_id) or any(
        evidence.power_off(world, i) is not None or evidence.died_of_power(world, i) for i in mine
    )


def _found_by_the_actor(world: World, incident: Incident) -> Iterator[_Claim]:
    for intent in world.book.intents_of(incident.id):
        other = disputed_node(intent.result) if intent.state is IntentState.REFUSED else None
        if other and isinstance(intent.action, _BY_ID):
            machine = intent.action.instance_id or f"the machine of {intent.action.node}"
            yield from (_Claim(machine, node, proved=True) for node in (other, intent.action.node))


def claimed_elsewhere(world: World, node: str, instance_id: str) -> bool:
    """Whether another node that Slurm has claims this machine: by its record, or by its agent now."""
    if not instance_id:
        return False
    known = world.view.nodes if world.view is not None else None
    others = {name for name, record in world.book.nodes.items() if record.instance_id == instance_id}
    others |= {
        name
        for name, agents in world.agents.items()
        if any(a.instance_id == instance_id and not node_agents.is_silent(world, a) for a in agents)
    }
    return any(name != node and (known is None or name in known) for name in others)


def follow_disputes(world: World, new_id: Callable[[datetime], str]) -> Change:
    """Open an incident for each new dispute, and close those that are over."""
    current = disputes(world)
    incidents: list[Incident] = []
    events: list[Event] = []
    covered = {i.instance_id for i in world.book.incidents.values() if _covers(world, i)}
    for incident in world.book.open_incidents():
        if incident.kind is IncidentKind.DISPUTED and incident.instance_id not in current:
            closed, seen = close(incident, world.now, "one node alone claims the machine now")
            incidents.append(closed)
            events += seen
    for instance_id, dispute in sorted(current.items()):
        if instance_id not in covered:
            opened, seen = open_incident(_new(world, dispute, new_id), IncidentState.WATCHING, world.now)
            incidents.append(opened)
            events += seen
    return Change(incidents=tuple(incidents), events=tuple(events))


def _covers(world: World, incident: Incident) -> bool:
    """Whether the dispute is open, or an operator closed it within the hour: no action is taken meanwhile, and the operator is not notified
    again at once."""
    if incident.kind is not IncidentKind.DISPUTED:
        return False
    closed = incident.closed_at
    return closed is None or world.now - closed < timedelta(seconds=STEP_HOUR_S)


def _new(world: World, dispute: Dispute, new_id: Callable[[datetime], str]) -> NewIncident:
    return NewIncident(
        id=new_id(world.now),
        kind=IncidentKind.DISPUTED,
        node=dispute.nodes[-1],
        instance_id=dispute.instance_id,
        severity=Severity.WARNING,
        remedy=Remedy.HUMAN,
        check=CHECK,
        headline=f"{CHECK}: {dispute.text}",
        fault_at=world.now,
        note=f"no machine of {' or '.join(dispute.held)} is repaired, rebooted or ended until one node alone claims it",
    )


@dataclass(frozen=True, slots=True)
class Contested:
    """Machines and nodes that no repair may touch now."""

    by_id: Mapping[str, Dispute]
    by_node: Mapping[str, Dispute]

    def about(self, action: Action) -> Dispute | None:
        """The dispute that forbids this step; None: none does."""
        dispute = self.by_id.get(action.instance_id) if isinstance(action, _BY_ID) else None
        if dispute is not None and not (dispute.settled and action.target.node == dispute.nodes[0]):
            return dispute
        if isinstance(action, _BY_NODE) or _resets(action):
            node = action.target.node
            return self.by_node.get(node) if node is not None else None
        return None


NONE_CONTESTED = Contested({}, {})


def _resets(action: Action) -> bool:
    return isinstance(action, SendOrder) and action.verb is Verb.RESET_GPU


def touches_a_machine(action: Action) -> bool:
    """Whether a dispute may forbid this step."""
    return isinstance(action, (*_BY_ID, *_BY_NODE)) or _resets(action)


def contested(world: World) -> Contested:
    """Machines in dispute, and the nodes whose machines are left alone for it."""
    found = disputes(world)
    return Contested(found, {node: each for each in found.values() for node in each.held})
