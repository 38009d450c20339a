"""Nodes, incidents, jobs, actions and events, for those who may look."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from holdfast import unexpected, unknown
from holdfast.api.auth import Role
from holdfast.api.deps import Api, ApiDeps
from holdfast.api.elastic import elastic_shapes
from holdfast.api.errors import ApiError, answers
from holdfast.api.guarded import READERS, caller_of, guarded_router
from holdfast.api.job_shapes import JobsShape, WhyShape
from holdfast.api.node_shapes import ClusterShape
from holdfast.api.operator_shapes import SuppressionShape, SuppressionsShape
from holdfast.api.proposal_shapes import proposals_of
from holdfast.api.shapes import (
    MAX_ID,
    ActionsShape,
    EventShape,
    EventsShape,
    IncidentsShape,
    IncidentStory,
    RecoveryShape,
    Since,
)
from holdfast.api.status import head_of
from holdfast.api.views import (
    Agents,
    action_shape,
    cluster_shape,
    finding_shape,
    incident_shape,
    job_shapes,
    timings_shape,
)
from holdfast.api.why import job_id_of, why_shape
from holdfast.metrics.timings import measure
from holdfast.model.action import Intent
from holdfast.model.event import Event, EventKind
from holdfast.model.incident import Incident

IncidentIdInPath = Annotated[str, Path(pattern="^[0-9a-z]{1,32}$", description="Id of an incident.")]
OfIncident = Annotated[str | None, Query(pattern="^[0-9a-z]{1,32}$", description="Only of this incident.")]
OfNode = Annotated[str | None, Query(pattern="^[A-Za-z0-9._-]{1,252}$", description="Only of this node.")]
SinceQuery = Annotated[Since | None, Query(description="Not before this time (ISO 8601; UTC without an offset).")]
LimitQuery = Annotated[int, Query(ge=1, le=1000, description="How many at most.")]


def reading_router(api: Api) -> APIRouter:
    router = guarded_router(api, "reading", *READERS)
    deps, threads, store = api.deps, api.threads, api.deps.store

    @router.get("/v1/nodes", response_model=ClusterShape)
    async def nodes() -> Response:
        """Every node: Slurm's view, its agents, open incidents, spares, and what holds Holdfast back."""
        return await threads.render(partial(_nodes, deps, deps.agents.views()))

    @router.get("/v1/incidents", response_model=IncidentsShape)
    async def incidents(
        node: OfNode = None,
        since: SinceQuery = None,
        only_open: Annotated[bool, Query(alias="open", description="Only open ones.")] = False,
        limit: LimitQuery = 200,
    ) -> Response:
        """Incidents, newest first."""
        found = partial(store.incidents, only_open=only_open, node=node, since=since, limit=limit)
        return await threads.render(lambda: _incidents(found()))

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
    async def actions(incident: OfIncident = None, limit: LimitQuery = 200) -> Response:
        """Every step outside, planned, done, failed, refused or withheld."""
        return await threads.render(lambda: _actions(store.intents(incident_id=incident, limit=limit)))

    @router.get("/v1/events", response_model=EventsShape)
    async def events(
        after_id: Annotated[int, Query(ge=0, le=MAX_ID, description="Only events after this one: a cursor.")] = 0,
        incident: OfIncident = None,
        since: SinceQuery = None,
        kind: Annotated[list[EventKind] | None, Query(description="Only these kinds.", max_length=50)] = None,
        limit: LimitQuery = 200,
    ) -> Response:
        """The append-only record, oldest first."""
        kinds = tuple(kind or ())
        found = partial(store.events, incident_id=incident, since=since, after_id=after_id, kinds=kinds, limit=limit)
        return await threads.render(lambda: _events(found(), after_id))

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
    ) -> Response:
        """Jobs that were recovered or registered checkpoints, and those made of replica groups; a user sees those of the own uid."""
        uid = caller_of(request).uid

        def shown() -> JobsShape:
            found, world = deps.store.recoveries(job_id=job_id, since=since), deps.world()
            jobs = [j for j in job_shapes(found, world, uid) if job_id in (None, j.job_id)]
            return JobsShape(jobs=jobs, elastic=elastic_shapes(world, uid, job_id))

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
            known = why_shape(number, ends, found, deps.world(), caller_of(request).uid)
            if known is None:
                raise ApiError(404, "not_found", f"Nothing is known of a job {job_id} of yours")
            return known

        return await api.threads.render(shown)

    return router


def _nodes(deps: ApiDeps, agents: Agents) -> ClusterShape:
    shown = cluster_shape(deps.world(), agents, deps.clock.now(), head_of(deps), slurm_seen_at=deps.slurm_seen_at())
    shown.failing = [f"{part}: {error}" for part, error in sorted(unexpected.standing().items())]
    shown.set_aside = [each.text for each in deps.aside()]
    aside = {"unreadable": unknown.unreadable(), "unreadable_since": unknown.unreadable_since()}
    return shown.model_copy(update={**aside, "untaken": deps.untaken.problem()})


def _incidents(found: Iterable[Incident]) -> IncidentsShape:
    return IncidentsShape(incidents=[incident_shape(i) for i in found])


def _actions(found: Iterable[Intent]) -> ActionsShape:
    return ActionsShape(actions=[action_shape(i) for i in found])


def _events(found: Iterable[Event], after_id: int) -> EventsShape:
    events = [EventShape.model_validate(e) for e in found]
    return EventsShape(events=events, next_after_id=max((e.id for e in events), default=after_id))


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
