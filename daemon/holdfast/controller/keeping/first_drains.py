"""Drain a faulty node before all of Slurm has been read: reading a large cluster takes a second, reading one node a tenth of that.

The decision is based on the last view with only the faulty nodes updated. It is used only where it drains these nodes and starts nothing
else. Affected jobs, the spare and everything else are decided afterwards on a complete view, as usual. The actor reads the node and the
reservations again before it drains (``docs/decisions/0022-drain-on-a-reading-of-one-node.md``).

The same while all of Slurm cannot be read but the node can, since its users' texts make the listing of jobs too long."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from holdfast.decisions.common import node_incidents
from holdfast.decisions.decide import Decision
from holdfast.decisions.repair.drain import contain
from holdfast.model.actions import steps
from holdfast.model.actions.action import Drain, IntentState
from holdfast.model.book import Change, World
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.slurm.cluster import Node
from holdfast_checks.result import Severity

MOST_NODES = 4
"""Maximum number of nodes. Each costs slurmctld a listing of all nodes: with more, a complete view costs no more, and many faults at once
may have one cause."""


def faulty_nodes(world: World) -> frozenset[str]:
    """Nodes with a fatal finding that no turn has processed yet."""
    found = world.book.findings.values()
    return frozenset(f.node for f in found if f.incident_id is None and f.severity is Severity.FATAL)


def undrained_nodes(world: World) -> frozenset[str]:
    """Nodes with a fatal finding whose incident waits for a drain that was not ordered yet, or may be ordered again."""
    return frozenset(i.node for i in world.book.open_incidents() if _undrained(world, i))


def _undrained(world: World, incident: Incident) -> bool:
    if incident.state is not IncidentState.OPEN or incident.dead or not node_incidents.acting(incident):
        return False
    fatal = any(f.severity is Severity.FATAL for f in node_incidents.findings_of(world, incident))
    return fatal and world.may_follow(world.book.attempts(incident.id, steps.drain(incident.node)))


def worth_reading(world: World, *, blind: bool = False) -> tuple[str, ...]:
    """The faulty nodes, if they are few and the view shows them all; empty: a complete view is read instead. ``blind``: there is none to be
    had; then also nodes whose incident waits for a drain, and of many the first ones: brakes count them all the same."""
    found = faulty_nodes(world)
    known = world.view.nodes if world.view is not None else {}
    if blind:
        return tuple(sorted((found | undrained_nodes(world)) & known.keys())[:MOST_NODES])
    return tuple(sorted(found)) if len(found) <= MOST_NODES and found <= known.keys() else ()


def with_nodes(world: World, nodes: Mapping[str, Node]) -> World:
    """The world with these nodes as they are now. Only for :func:`only_drains`: such a mix of old and new may never have existed."""
    assert world.view is not None  # noqa: S101 - worth_reading() said so
    return replace(world, view=replace(world.view, read_at=world.now, nodes={**world.view.nodes, **nodes}))


def drains(nodes: Mapping[str, Node]) -> Callable[[World], Decision]:
    """Decide only whether to drain these nodes. A node that is out of service already waits for a complete view."""
    serving = {name for name, node in nodes.items() if not node.out_of_service}

    def decide(world: World) -> Decision:
        proposed = contain(world).proposals
        return Decision(tuple(p for p in proposed if isinstance(p.action, Drain) and p.action.node in serving))

    return decide


def only_drains(change: Change, nodes: Mapping[str, Node]) -> bool:
    """Whether the change drains some of these nodes and starts nothing else."""
    return (
        any(i.state is IntentState.PLANNED for i in change.intents)
        and all(isinstance(i.action, Drain) and i.action.node in nodes for i in change.intents)
        and all(i.node in nodes for i in change.incidents)
        and not change.recoveries
        and not change.brakes
    )
