"""A node's incidents: which of them act, their findings, and the nodes that recovered jobs are kept off. Pure."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from holdfast.model.actions.action import Action, Drain
from holdfast.model.agents.report import Finding
from holdfast.model.book import Book, World
from holdfast.model.ids import held_reason, is_reason
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState
from holdfast_checks.result import Severity

IDLE_INCIDENTS = frozenset({IncidentState.WATCHING, IncidentState.SUSPECTED, IncidentState.CLOSED})
"""States in which an incident keeps no job off its node."""
HUNG = "job.hung"
"""Check of the incident of a job that hangs, shown for as long as that run lasts."""
STRAGGLER = "job.straggler"
"""Check of the incident of a part of a job that is slower than the others."""


def acting(incident: Incident) -> bool:
    """An incident that takes its node out of service (unless an operator took it over)."""
    return incident.open and incident.state not in IDLE_INCIDENTS and not incident.acknowledged


def findings_of(world: World, incident: Incident) -> list[Finding]:
    """Findings of the node's agents, except consequences of another fault."""
    return [f for f in world.book.findings.values() if f.incident_id == incident.id and not f.consequence]


def suspect_nodes(world: World) -> frozenset[str]:
    """Nodes that no recovered job may run on: those with an open fatal incident, drained or not; found bad by pair probes after a job
    failed; for a while, suspects of a hang; held by a reservation, since Slurm lets a job in a Holdfast hold use nodes of other
    reservations (docs/slurm-notes.md); and those with an incident that cannot be read, which may be fatal."""
    incidents = world.book.open_incidents()
    return frozenset(
        i.node
        for i in incidents
        if i.state not in IDLE_INCIDENTS
        and (
            i.severity is Severity.FATAL
            or i.run is not None
            or i.kind is IncidentKind.UNREADABLE
            or _held_by_reservation(world, i)
        )
    ) | frozenset(node for i in incidents if _stands_out(world, i) for node in i.odd or ())


def to_exclude(world: World, *, in_service_only: bool) -> frozenset[str]:
    """Suspect nodes that a recovered job is kept off by its exclusions. ``in_service_only``: without those on which Slurm starts no job."""
    suspects = suspect_nodes(world)
    return suspects - _kept_free_by_slurm(world, suspects) if in_service_only else suspects


def _kept_free_by_slurm(world: World, names: Collection[str]) -> frozenset[str]:
    """Drained and DOWN nodes. One that a reservation holds is shown drained and is not: Slurm may let a job in a hold of ours use it."""
    held = {i.node for i in world.book.open_incidents() if _held_by_reservation(world, i)}
    nodes = world.view.nodes if world.view is not None else {}
    return frozenset(n for n in names if n in nodes and nodes[n].out_of_service and n not in held)


def unreadable_incident(book: Book, incident_id: str, action: Action) -> Incident | None:
    """The open incident that cannot be read of the node that a step is at, or is done for; None: there is none, or the step is a drain,
    which takes nothing from the node that an operator cannot give back."""
    cause = book.incidents.get(incident_id)
    nodes = {action.target.node, cause.node if cause is not None else None}
    found = (i for i in book.open_incidents() if i.kind is IncidentKind.UNREADABLE and i.node in nodes)
    return None if isinstance(action, Drain) else next(found, None)


def _stands_out(world: World, incident: Incident) -> bool:
    """Whether its odd nodes are excluded: for as long as the probe of them may take."""
    since = incident.state_since or incident.opened_at
    bound = timedelta(seconds=world.policy.hangs.probe_s)
    return bool(incident.odd) and not incident.acknowledged and (incident.hangs or world.now - since <= bound)


def _held_by_reservation(world: World, incident: Incident) -> bool:
    node = world.view.nodes.get(incident.node) if world.view is not None else None
    return node is not None and node.draining and is_reason(node.reason, held_reason(incident.id))
