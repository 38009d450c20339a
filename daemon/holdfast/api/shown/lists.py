"""What the lists of the API show: filters and pages of nodes, incidents, actions, events and jobs. In threads; each may raise ApiError
422 for a cursor."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from holdfast.api.answers.job_shapes import JobShape
from holdfast.api.answers.node_shapes import NodeShape
from holdfast.api.answers.shapes import ActionsShape, EventShape, EventsShape, IncidentsShape
from holdfast.api.deps import ApiStore
from holdfast.api.shown.paging import PagePlace, cursor_of, digest_of, page, place_of, sliced
from holdfast.api.shown.views import action_shape, incident_shape
from holdfast.model.actions.action import Intent, IntentState
from holdfast.model.book import World
from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState

Texts = Collection[str] | None


def _digest(filters: Any) -> str:
    return digest_of({name: _plain(value) for name, value in asdict(filters).items()})


def _plain(value: Any) -> Any:
    """Without the order in which a filter's values were given."""
    return sorted(map(str, value)) if isinstance(value, list | tuple | set | frozenset) else value


def _cursor(name: str, filters: Any, place: PagePlace | None) -> str | None:
    return cursor_of(name, _digest(filters), place) if place is not None else None


def _one_of(wanted: Collection[Any] | None, value: Any) -> bool:
    return not wanted or value in wanted


def nodes_in(world: World | None, partitions: Texts) -> frozenset[str] | None:
    """Nodes in one of these partitions, as Slurm shows them now; None: any node will do."""
    if not partitions:
        return None
    view = world.view if world is not None else None
    return frozenset(n.name for n in view.nodes.values() if {*n.partitions} & {*partitions}) if view else frozenset()


@dataclass(frozen=True, slots=True)
class IncidentFilters:
    """Which incidents."""

    only_open: bool = False
    node: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    state: Collection[IncidentState] | None = None
    kind: Collection[IncidentKind] | None = None
    check: Texts = None
    partition: Texts = None

    def takes(self, incident: Incident, nodes: frozenset[str] | None) -> bool:
        """``nodes``: those of the partitions; None: any. Stored words of newer releases are in no filter."""
        return (
            _one_of(self.state, incident.state)
            and _one_of(self.kind, incident.kind)
            and _one_of(self.check, incident.check)
            and (nodes is None or incident.node in nodes)
        )


def incidents_page(
    store: ApiStore, world: World | None, filters: IncidentFilters, cursor: str | None, limit: int
) -> IncidentsShape:
    """Newest first."""
    start, nodes = place_of(cursor, "incidents", _digest(filters), datetime, str), nodes_in(world, filters.partition)

    def fetch(before: Any, most: int) -> Sequence[Incident]:
        return store.list_incidents(
            only_open=filters.only_open,
            node=filters.node,
            since=filters.since,
            until=filters.until,
            before=before,
            limit=most,
        )

    found, place = page(
        fetch, lambda each: filters.takes(each, nodes), lambda each: (each.opened_at, each.id), start, limit
    )
    return IncidentsShape(
        incidents=[incident_shape(i) for i in found], next_cursor=_cursor("incidents", filters, place)
    )


@dataclass(frozen=True, slots=True)
class ActionFilters:
    """Which steps."""

    incident: str | None = None
    node: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    state: Collection[IntentState] | None = None
    kind: Texts = None
    partition: Texts = None

    def takes(self, intent: Intent, nodes: frozenset[str] | None) -> bool:
        node = intent.action.target.node
        return (
            _one_of(self.state, intent.state)
            and _one_of(self.kind, intent.kind)
            and self.node in (None, node)
            and (nodes is None or node in nodes)
        )


def actions_page(
    store: ApiStore, world: World | None, filters: ActionFilters, cursor: str | None, limit: int
) -> ActionsShape:
    """The newest ones, oldest first; the next page is of older ones."""
    start, nodes = place_of(cursor, "actions", _digest(filters), datetime, int, str), nodes_in(world, filters.partition)

    def fetch(before: Any, most: int) -> Sequence[Intent]:
        return store.list_intents(
            incident_id=filters.incident, since=filters.since, until=filters.until, before=before, limit=most
        )

    found, place = page(
        fetch,
        lambda each: filters.takes(each, nodes),
        lambda each: (each.planned_at, each.order, each.key),
        start,
        limit,
    )
    return ActionsShape(
        actions=[action_shape(i) for i in reversed(found)], next_cursor=_cursor("actions", filters, place)
    )


@dataclass(frozen=True, slots=True)
class EventFilters:
    """Which records."""

    incident: str | None = None
    node: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    kind: Collection[EventKind] | None = None
    partition: Texts = None
    newest_first: bool = False


def events_page(
    store: ApiStore, world: World | None, filters: EventFilters, after_id: int, cursor: str | None, limit: int
) -> EventsShape:
    """Oldest first, or newest first. ``cursor`` goes before ``after_id`` where the oldest are first."""
    newest_first, nodes = filters.newest_first, nodes_in(world, filters.partition)
    start = place_of(cursor, "events", _digest(filters), int)
    first = max(0, start[0]) if start is not None and not newest_first else after_id

    def fetch(place: Any, most: int) -> Sequence[Event]:
        number = place[0] if place is not None else None
        return store.list_events(
            incident_id=filters.incident,
            node=filters.node,
            since=filters.since,
            until=filters.until,
            after_id=after_id if newest_first else number or 0,
            before_id=number if newest_first else None,
            kinds=tuple(filters.kind or ()),
            limit=most,
            newest_first=newest_first,
        )

    found, place = page(
        fetch,
        lambda each: nodes is None or each.node in nodes,
        lambda each: (each.id,),
        start if newest_first else (first,),
        limit,
    )
    events = [EventShape.model_validate(e) for e in found]
    read_to = place[0] if place is not None and not newest_first else max((e.id for e in events), default=first)
    return EventsShape(events=events, next_after_id=read_to, next_cursor=_cursor("events", filters, place))


@dataclass(frozen=True, slots=True)
class NodeFilters:
    """Which nodes."""

    state: Texts = None
    """Slurm's words, base state or flag, in any case: idle, drain."""
    partition: Texts = None
    check: Texts = None
    """Of an open incident, or failing as the agent says."""
    kind: Collection[IncidentKind] | None = None
    """Of an open incident."""

    def takes(self, node: NodeShape) -> bool:
        words = set(node.state.upper().split("+"))
        checks = {i.check for i in node.incidents} | {name for agent in node.agents for name in agent.failing}
        return (
            (not self.state or bool(words & {word.upper() for word in self.state}))
            and (not self.partition or bool({*node.partitions} & {*self.partition}))
            and (not self.check or bool(checks & {*self.check}))
            and (not self.kind or any(i.kind in self.kind for i in node.incidents))
        )


def nodes_page(
    nodes: list[NodeShape], filters: NodeFilters, cursor: str | None, limit: int | None
) -> tuple[list[NodeShape], str | None]:
    """Of nodes sorted by name: a page, and the cursor of the next one."""
    start = place_of(cursor, "nodes", _digest(filters), str)
    found, place = sliced([n for n in nodes if filters.takes(n)], lambda node: (node.name,), start, limit)
    return found, _cursor("nodes", filters, place)


@dataclass(frozen=True, slots=True)
class JobFilters:
    """Which jobs."""

    job_id: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    """Jobs with a recovery that began before; those that only registered a checkpoint have none."""
    state: Texts = None
    """State of the job that Slurm shows now, in any case, or the phase of a recovery of it."""
    partition: Texts = None

    def takes(self, job: JobShape, partition: str | None) -> bool:
        """``partition``: Slurm's, of the job now; None: it is not in the queue."""
        words = {job.state.upper(), *(str(r.phase).upper() for r in job.recoveries)}
        partitions = {partition or "", *(r.partition for r in job.recoveries)}
        return (
            (not self.state or bool(words & {word.upper() for word in self.state}))
            and (not self.partition or bool(partitions & {*self.partition}))
            and (self.until is None or any(r.created_at < self.until for r in job.recoveries))
        )


def jobs_page(
    jobs: Iterable[JobShape], world: World | None, filters: JobFilters, cursor: str | None, limit: int | None
) -> tuple[list[JobShape], str | None]:
    """Of jobs with the newest id first: a page, and the cursor of the next one."""
    start = place_of(cursor, "jobs", _digest(filters), int)
    queue: Mapping[int, Any] = world.view.jobs if world is not None and world.view is not None else {}
    left = (j for j in jobs if start is None or (-j.job_id,) > start)
    wanted = (j for j in left if filters.takes(j, queue[j.job_id].partition if j.job_id in queue else None))
    taken = list(wanted if limit is None else islice(wanted, limit + 1))
    found, place = sliced(taken, lambda job: (-job.job_id,), None, limit)
    return found, _cursor("jobs", filters, place)
