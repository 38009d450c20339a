"""Nodes, incidents, jobs, actions and events, for those who may look."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from holdfast import unexpected, unknown
from holdfast.api.answers.job_shapes import JobsShape, WhyShape
from holdfast.api.answers.node_shapes import ClusterShape
from holdfast.api.answers.operator_shapes import SuppressionShape, SuppressionsShape
from holdfast.api.answers.proposal_shapes import proposals_of
from holdfast.api.answers.shapes import (
    MAX_ID,
    ActionsShape,
    EventShape,
    EventsShape,
    IncidentsShape,
    IncidentStory,
    RecoveryShape,
    Since,
)
from holdfast.api.callers.auth import Role
from holdfast.api.deps import Api, ApiDeps
from holdfast.api.errors import ApiError, answers
from holdfast.api.guards.guarded import READERS, caller_of, guarded_router
from holdfast.api.reads.status import head_of
from holdfast.api.shown.elastic import elastic_shapes
from holdfast.api.shown.lists import (
    ActionFilters,
    EventFilters,
    IncidentFilters,
    JobFilters,
    NodeFilters,
    actions_page,
    events_page,
    incidents_page,
    jobs_page,
    nodes_page,
)
from holdfast.api.shown.paging import InPartition, MostOrAll, PageCursor
from holdfast.api.shown.views import (
    Agents,
    action_shape,
    cluster_shape,
    finding_shape,
    incident_shape,
    job_shapes,
    timings_shape,
)
from holdfast.api.shown.why import job_id_of, why_shape
from holdfast.decisions.parts import held_back_by_actor
from holdfast.metrics.timings import measure
from holdfast.model.actions.action import IntentState
from holdfast.model.event import EventKind
from holdfast.model.incidents.incident import IncidentKind, IncidentState

IncidentIdInPath = Annotated[str, Path(pattern="^[0-9a-z]{1,32}$", description="Id of an incident.")]
OfIncident = Annotated[str | None, Query(pattern="^[0-9a-z]{1,32}$", description="Only of this incident.")]
OfNode = Annotated[str | None, Query(pattern="^[A-Za-z0-9._-]{1,252}$", description="Only of this node.")]
SinceQuery = Annotated[Since | None, Query(description="Not before this time (ISO 8601; UTC without an offset).")]
UntilQuery = Annotated[Since | None, Query(description="Before this time (ISO 8601; UTC without an offset).")]
OfCheck = Annotated[list[str] | None, Query(description="Only of one of these checks: `gpu.xid`.", max_length=50)]
OfKind = Annotated[list[IncidentKind] | None, Query(description="Only of one of these kinds.", max_length=50)]
Limit = Annotated[int, Query(ge=1, le=1000, description="How many at most.")]


def reading_router(api: Api) -> APIRouter:
    router = guarded_router(api, "reading", *READERS)
    deps, threads, store = api.deps, api.threads, api.deps.store

    @router.get("/v1/nodes", response_model=ClusterShape)
    async def nodes(
        state: Annotated[
            list[str] | None,
            Query(description="Only in one of these states or flags of Slurm: `idle`, `drain`.", max_length=50),
        ] = None,
        partition: InPartition = None,
        check: OfCheck = None,
        kind: OfKind = None,
        limit: MostOrAll = None,
        cursor: PageCursor = None,
    ) -> Response:
        """Every node: Slurm's view, its agents, open incidents, spares, and what holds Holdfast back."""
        filters = NodeFilters(state, partition, check, kind)
        return await threads.render(lambda: _nodes(deps, deps.agents.views(), filters, cursor, limit))

    @router.get("/v1/incidents", response_model=IncidentsShape)
    async def incidents(
        node: OfNode = None,
        since: SinceQuery = None,
        only_open: Annotated[bool, Query(alias="open", description="Only open ones.")] = False,
        limit: Limit = 200,
        until: UntilQuery = None,
        state: Annotated[
            list[IncidentState] | None, Query(description="Only in one of these states.", max_length=50)
        ] = None,
        kind: OfKind = None,
        check: OfCheck = None,
        partition: InPartition = None,
        cursor: PageCursor = None,
    ) -> Response:
        """Incidents, newest first. With filters a page may hold fewer than `limit`, even none, while `next_cursor` is there."""
        filters = IncidentFilters(only_open, node, since, until, state, kind, check, partition)
        return await threads.render(lambda: incidents_page(store, deps.world(), filters, cursor, limit))

    @router.get("/v1/incidents/{incident_id}", responses=answers(404), response_model=IncidentStory)
    async def incident(incident_id: IncidentIdInPath) -> Response:
        """One incident with its findings, timeline, actions, recoveries and timings."""
        return await threads.render(partial(incident_story, api, incident_id))

    @router.get("/v1/incidents/{incident_id}/bundle", responses=answers(404), response_class=Response)
    async def bundle(incident_id: IncidentIdInPath) -> Response:
        """The evidence that the node's agent collected before the hardware was released: a tar.gz."""
        found = await threads.read(store.evidence, incident_id)
        if found is None:
            raise ApiError(404, "not_found", f"There is no evidence bundle of incident {incident_id}")
        return Response(found.bundle, media_type="application/gzip")

    @router.get("/v1/suppressions")
    async def suppressions() -> SuppressionsShape:
        """What operators have suppressed, and until when."""
        book = await threads.read(store.load_book, deps.clock.now())
        held = sorted(book.suppressions.values(), key=lambda each: each.until)
        return SuppressionsShape(suppressions=[SuppressionShape.model_validate(each) for each in held])

    @router.get("/v1/actions", response_model=ActionsShape)
    async def actions(
        incident: OfIncident = None,
        limit: Limit = 200,
        node: OfNode = None,
        since: SinceQuery = None,
        until: UntilQuery = None,
        state: Annotated[
            list[IntentState] | None, Query(description="Only in one of these states.", max_length=50)
        ] = None,
        kind: Annotated[list[str] | None, Query(description="Only these: `Drain`, `Requeue`.", max_length=50)] = None,
        partition: InPartition = None,
        cursor: PageCursor = None,
    ) -> Response:
        """Every step outside, planned, done, failed, refused or withheld: the newest, oldest first; `next_cursor` leads to older ones."""
        filters = ActionFilters(incident, node, since, until, state, kind, partition)
        return await threads.render(lambda: actions_page(store, deps.world(), filters, cursor, limit))

    @router.get("/v1/events", response_model=EventsShape)
    async def events(
        after_id: Annotated[int, Query(ge=0, le=MAX_ID, description="Only events after this one: a cursor.")] = 0,
        incident: OfIncident = None,
        since: SinceQuery = None,
        kind: Annotated[list[EventKind] | None, Query(description="Only these kinds.", max_length=50)] = None,
        limit: Limit = 200,
        node: OfNode = None,
        until: UntilQuery = None,
        partition: InPartition = None,
        newest_first: Annotated[
            bool,
            Query(description="The newest first; `next_cursor` leads to older ones, `next_after_id` to what comes."),
        ] = False,
        cursor: PageCursor = None,
    ) -> Response:
        """The append-only record, oldest first. Both cursors lead on; `after_id` also where all was read, to what comes."""
        filters = EventFilters(incident, node, since, until, kind, partition, newest_first)
        return await threads.render(lambda: events_page(store, deps.world(), filters, after_id, cursor, limit))

    return router


def jobs_router(api: Api) -> APIRouter:
    """Apart, since users may look at their own."""
    router = guarded_router(api, "jobs", *READERS, Role.USER)
    deps = api.deps

    @router.get("/v1/jobs", response_model=JobsShape)
    async def jobs(
        request: Request,
        job_id: Annotated[int | None, Query(ge=0, le=MAX_ID, description="Only this job.")] = None,
        since: SinceQuery = None,
        until: UntilQuery = None,
        state: Annotated[
            list[str] | None,
            Query(description="Only in one of these states of Slurm, or with a recovery in this phase.", max_length=50),
        ] = None,
        partition: InPartition = None,
        limit: MostOrAll = None,
        cursor: PageCursor = None,
    ) -> Response:
        """Jobs that were recovered or registered checkpoints, and those made of replica groups; a user sees those of the own uid."""
        uid, filters = caller_of(request).uid, JobFilters(job_id, since, until, state, partition)

        def shown() -> JobsShape:
            found, world = deps.store.recoveries(job_id=job_id, since=since), deps.world()
            mine = (j for j in job_shapes(found, world, uid) if job_id in (None, j.job_id))
            jobs, after = jobs_page(mine, world, filters, cursor, limit)
            elastic = elastic_shapes(world, uid, job_id) if cursor is None else []
            return JobsShape(jobs=jobs, elastic=elastic, next_cursor=after)

        return await api.threads.render(shown)

    @router.get("/v1/jobs/{job_id}/why", responses=answers(404), response_model=WhyShape)
    async def why(
        request: Request,
        job_id: Annotated[int, Path(ge=1, le=MAX_ID, description="Slurm's id of the job, or of the array.")],
        task: Annotated[int | None, Query(ge=0, le=MAX_ID, description="Of an array: this element.")] = None,
    ) -> Response:
        """Why runs of a job ended: a fault of a node, memory, a full disk, the time limit, the program, or unknown. A user sees the own.

        An array's element is found by its task for an hour after its end, then by its own id."""
        number = job_id_of(deps.world(), job_id, task)
        if number is None:
            text = f"Nothing is known of element {job_id}_{task} of yours; an hour after its end ask by its own id (SLURM_JOB_ID)"
            raise ApiError(404, "not_found", text)

        def shown() -> WhyShape:
            ends, found = deps.store.job_ends(number), deps.store.recoveries(job_id=number)
            incidents = {n: deps.store.incident(n) for n in {r.incident_id for r in found}}
            about = {n: incident for n, incident in incidents.items() if incident is not None}
            known = why_shape(number, ends, found, deps.world(), caller_of(request).uid, about)
            if known is None:
                raise ApiError(404, "not_found", f"Nothing is known of a job {job_id} of yours")
            return known

        return await api.threads.render(shown)

    return router


def _nodes(deps: ApiDeps, agents: Agents, filters: NodeFilters, cursor: str | None, limit: int | None) -> ClusterShape:
    shown = cluster_shape(deps.world(), agents, deps.clock.now(), head_of(deps), slurm_seen_at=deps.slurm_seen_at())
    shown.failing = [f"{part}: {error}" for part, error in sorted(unexpected.standing().items())]
    shown.set_aside = [each.text for each in deps.aside()]
    shown.nodes, shown.next_cursor = nodes_page(shown.nodes, filters, cursor, limit)
    aside = {"unreadable": unknown.unreadable(), "unreadable_since": unknown.unreadable_since()}
    return shown.model_copy(update={**aside, "untaken": held_back_by_actor(deps.actor()) or deps.untaken.problem()})


def incident_story(api: Api, incident_id: str) -> IncidentStory:
    """Read in one thread, one query after another. Raises ApiError 404."""
    store = api.deps.store
    incident = store.incident(incident_id)
    if incident is None:
        raise ApiError(404, "not_found", f"There is no incident {incident_id}; GET /v1/incidents lists them")
    events = store.events(incident_id=incident_id)
    timings = measure(events)
    return IncidentStory(
        incident=incident_shape(incident),
        findings=[finding_shape(f) for f in store.findings(incident_id=incident_id)],
        timeline=sorted((EventShape.model_validate(e) for e in events), key=lambda e: (e.at, e.id)),
        actions=[action_shape(i) for i in store.intents(incident_id=incident_id)],
        recoveries=[RecoveryShape.model_validate(r) for r in store.recoveries(incident_id=incident_id)],
        timings=timings_shape(timings[0]) if timings else None,
        proposals=proposals_of(incident),
    )
