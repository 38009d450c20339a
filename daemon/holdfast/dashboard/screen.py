"""What the first screen shows, as data: made once for everybody who looks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from holdfast.api.answers.overview_shapes import OverviewShape
from holdfast.metrics.timings import Spread
from holdfast.model.book import Book, World
from holdfast.model.incidents.fleet import NodeGroup, group_of, natural
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.slurm.cluster import ClusterView

DAY = timedelta(hours=24)
UNPLACED = "other nodes"
"""Group of nodes in no partition."""


@dataclass(frozen=True, slots=True)
class GridCell:
    """One node of the grid."""

    node: str
    group: NodeGroup
    spare: bool
    text: str
    """Why it is in this group, for people; empty: nothing is to be said."""

    @property
    def trouble(self) -> bool:
        """Whether an operator's eye should fall on it."""
        return self.group is not NodeGroup.IN_SERVICE


@dataclass(frozen=True, slots=True)
class GridGroup:
    """The nodes of one partition, in natural order."""

    name: str
    cells: tuple[GridCell, ...]


@dataclass(frozen=True, slots=True)
class NodeTrouble:
    """One time within the last day that a node was in trouble."""

    node: str
    incident_id: str
    headline: str
    since: datetime
    until: datetime | None
    """None: it still is."""
    waits: bool
    """For an operator."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What the tiles show of weeks: read now and then."""

    jobs_back: int = 0
    """Jobs running again, of the last 7 days."""
    jobs_stopped: int = 0
    mttr: Spread | None = None
    """Fault to job running again, of the last 30 days; None: there was none."""
    mttr_before: Spread | None = None
    """Of the 30 days before."""
    lost_gpu_hours: float | None = None
    """Of the last 30 days."""
    saved_gpu_hours: float | None = None


@dataclass(frozen=True, slots=True)
class FirstScreen:
    """All of it."""

    cluster: str
    now: datetime
    overview: OverviewShape
    groups: tuple[GridGroup, ...]
    incidents: tuple[Incident, ...]
    """Open ones that call for something, the worst first."""
    troubles: tuple[NodeTrouble, ...]
    spares_ready: int
    spares_wanted: int | None
    figures: Figures = field(default_factory=Figures)

    @property
    def nodes(self) -> int:
        return sum(len(g.cells) for g in self.groups)

    @property
    def in_trouble(self) -> int:
        return sum(c.trouble for g in self.groups for c in g.cells)


def grid(world: World | None, agents: Mapping[str, Sequence[str]]) -> tuple[GridGroup, ...]:
    """Nodes by their first partition. ``agents``: node → the status of each of its agents."""
    view = world.view if world is not None else None
    book = world.book if world is not None else Book()
    slurm = view.nodes if view is not None else {}
    incidents: dict[str, list[Incident]] = {}
    for incident in book.open_incidents():
        incidents.setdefault(incident.node, []).append(incident)
    spares = _spares(world, view)
    found: dict[str, list[GridCell]] = {}
    for name in sorted({*slurm, *agents, *incidents} - {""}, key=natural):
        node = slurm.get(name)
        place = node.partitions[0] if node is not None and node.partitions else UNPLACED
        found.setdefault(place, []).append(_cell(name, view, incidents.get(name, ()), agents.get(name, ()), spares))
    return tuple(GridGroup(name, tuple(cells)) for name, cells in sorted(found.items(), key=lambda i: natural(i[0])))


def _spares(world: World | None, view: ClusterView | None) -> frozenset[str]:
    pool = view.reservations.get(world.policy.spare_reservation) if world is not None and view is not None else None
    return frozenset(pool.nodes) if pool is not None else frozenset()


def _cell(
    name: str, view: ClusterView | None, incidents: Sequence[Incident], agents: Sequence[str], spares: frozenset[str]
) -> GridCell:
    node = view.nodes.get(name) if view is not None else None
    words = (node.base_state, *node.flags) if node is not None else ()
    busy = view is not None and bool(view.jobs_on(name))
    group = group_of(words, [i.state.value for i in incidents], agents, busy=busy)
    why = [f"{i.headline}: {i.note}" if i.note else i.headline for i in incidents]
    if not why and node is not None and node.out_of_service and node.reason:
        why = [f"{node.reason_user or 'Slurm'}: {node.reason}"]
    return GridCell(name, group, name in spares, "; ".join(why))


_GRAVE = (
    IncidentState.AWAITING_HUMAN,
    IncidentState.OPEN,
    IncidentState.CONTAINED,
    IncidentState.REPAIRING,
    IncidentState.VALIDATING,
    IncidentState.SUSPECTED,
    IncidentState.WATCHING,
)


def listed(incidents: Iterable[Incident]) -> tuple[Incident, ...]:
    """Those for an operator first, then the ones at work; the watched ones last; of each the oldest first."""
    return tuple(sorted(incidents, key=lambda i: (_GRAVE.index(i.state), i.opened_at, i.id)))


def troubles(incidents: Iterable[Incident], now: datetime) -> tuple[NodeTrouble, ...]:
    """Of the last day, by node; warnings that were only watched are left out."""
    mine = [i for i in incidents if i.node and (i.closed_at is None or i.closed_at > now - DAY) and _acted(i)]
    return tuple(
        NodeTrouble(
            node=i.node,
            incident_id=i.id,
            headline=i.headline,
            since=max(i.fault_at, now - DAY),
            until=i.closed_at,
            waits=i.state is IncidentState.AWAITING_HUMAN,
        )
        for i in sorted(mine, key=lambda i: (natural(i.node), i.opened_at))
    )


def _acted(incident: Incident) -> bool:
    return incident.state is not IncidentState.WATCHING and bool(
        incident.closed_at is None or incident.rung or incident.took_node_out
    )
