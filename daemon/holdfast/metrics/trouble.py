"""Nodes in trouble, as Prometheus shows them: one state for each. Pure.

A node that is plainly healthy is not here, so that the number of series is that of the nodes in trouble."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from holdfast.decisions.common.node_drains import DrainedBy, drained_by
from holdfast.decisions.nodes.health import unrepaired
from holdfast.model.book import World
from holdfast.model.incidents.incident import ABOUT_JOBS, Incident, IncidentKind, IncidentState
from holdfast.model.slurm.cluster import Node
from holdfast_checks.result import Severity


class TroubleState(StrEnum):
    """States of a node in trouble, gravest first: a node has the first that holds."""

    AWAITING_HUMAN = "awaiting_human"
    """An open incident waits for an operator."""
    REPAIRING = "repairing"
    """The ladder is at work on it."""
    VALIDATING = "validating"
    """Repaired or replaced; it must prove itself."""
    CONTAINED = "contained"
    """Out of service for an incident; its jobs are being recovered or run to their end."""
    OPEN = "open"
    """A fault that calls for action; not out of service yet."""
    SUSPECTED = "suspected"
    """Its agent does not report while the node is in use."""
    DOWN_IN_SLURM = "down_in_slurm"
    """slurmctld set it DOWN, without an open incident."""
    DRAINED_BY_OPERATOR = "drained_by_operator"
    """An operator or another tool took it out of service."""
    DRAINED_BY_HOLDFAST = "drained_by_holdfast"
    """Out of service by a drain of Holdfast's, without an open incident."""
    WATCHING = "watching"
    """Something is recorded about it, and nothing is to be done."""


_RANK = {state: rank for rank, state in enumerate(TroubleState)}
_OUT = {
    DrainedBy.SLURM: TroubleState.DOWN_IN_SLURM,
    DrainedBy.FOREIGN: TroubleState.DRAINED_BY_OPERATOR,
    DrainedBy.OURS: TroubleState.DRAINED_BY_HOLDFAST,
}


@dataclass(frozen=True, slots=True)
class TroubledNode:
    """One node in trouble. Unknown texts are empty."""

    name: str
    state: TroubleState
    instance_id: str = ""
    instance_type: str = ""
    gpu: str = ""
    """Model of its GPUs as Slurm's GRES names it."""


def troubled(world: World) -> tuple[TroubledNode, ...]:
    """All nodes in trouble, gravest first, then by name."""
    found = dict(_out_of_service(world))
    for node, state in _with_incident(world):
        found[node] = min(state, found.get(node, state), key=_RANK.__getitem__)
    ordered = sorted(found.items(), key=lambda one: (_RANK[one[1]], one[0]))
    return tuple(_described(world, name, state) for name, state in ordered)


def _with_incident(world: World) -> Iterator[tuple[str, TroubleState]]:
    about_nodes = (i for i in world.book.incidents.values() if i.open and i.kind not in ABOUT_JOBS and i.node)
    for incident in about_nodes:
        yield incident.node, TroubleState(incident.state.value)


def _out_of_service(world: World) -> Iterator[tuple[str, TroubleState]]:
    for node in world.view.nodes.values() if world.view is not None else ():
        by = None if node.asleep else drained_by(world, node)
        if by is not None:
            yield node.name, _OUT[by]


def _described(world: World, name: str, state: TroubleState) -> TroubledNode:
    node = world.view.nodes.get(name) if world.view is not None else None
    record = world.book.nodes.get(name)
    return TroubledNode(
        name,
        state,
        record.instance_id if record is not None else "",
        instance_type_of(node) if node is not None else "",
        gpu_of(node.gres) if node is not None else "",
    )


_MODEL = re.compile(r"(?:^|,)gpu:(?P<model>[A-Za-z][\w.-]*):\d+")
_TYPE = re.compile(r"(?:ml\.)?[a-z][a-z0-9-]*\d[a-z0-9-]*\.(?:\d*x?large|metal[a-z0-9-]*|nano|micro|small|medium)")


def gpu_of(gres: str) -> str:
    """``h100`` of ``gpu:h100:8``; empty: Slurm's Gres names no model."""
    found = _MODEL.search(gres)
    return found["model"] if found is not None else ""


def instance_type_of(node: Node) -> str:
    """Type of machine where one of the node's features names it, as ParallelCluster and HyperPod set them; empty: none does."""
    return next((f for f in sorted(node.features) if _TYPE.fullmatch(f)), "")


def in_service_with_fault(world: World) -> tuple[str, ...]:
    """Nodes that Slurm shows in service while a fault that had, or should have, taken them out is still there, by name.

    That is: an open incident that an operator has acknowledged, or one that calls for action; or a check that its agent reports as
    failing, while an incident of the node was closed without a proof of its repair, or was opened for that very check."""
    if world.view is None:
        return ()
    by_node: dict[str, list[Incident]] = {}
    for incident in world.book.incidents.values():
        by_node.setdefault(incident.node, []).append(incident)
    serving = (n.name for n in world.view.nodes.values() if not n.out_of_service and not n.asleep)
    return tuple(sorted(name for name in serving if _faulty(name, by_node.get(name, ()), world)))


_GRAVE = frozenset({Severity.FATAL, Severity.DEGRADED})


def _faulty(name: str, incidents: Iterable[Incident], world: World) -> bool:
    grave = [i for i in incidents if i.severity in _GRAVE and i.kind is IncidentKind.FAULT]
    if any(i.open and (i.acknowledged or i.state is not IncidentState.WATCHING) for i in grave):
        return True
    agents = world.agents.get(name, ())
    if any(unrepaired(grave, agent) is not None for agent in agents):
        return True
    failing = {check for agent in agents for check in agent.failing}
    return any(not i.open and i.check in failing for i in grave)  # rule kind-not-check: counted, no decision


def held_jobs(world: World) -> int:
    """Jobs that Holdfast holds, so that they do not start again until their owner or an operator releases them."""
    return sum(i.open and i.kind is IncidentKind.HELD_JOB for i in world.book.incidents.values())


def by_state(nodes: Iterable[TroubledNode]) -> Mapping[TroubleState, int]:
    """State → how many nodes, for every state."""
    counts = dict.fromkeys(TroubleState, 0)
    for node in nodes:
        counts[node.state] += 1
    return counts
