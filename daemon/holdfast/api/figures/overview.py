"""What Holdfast does now, what waits for an operator, what happened, and what it spared: the answers of ``holdfast status``, ``night``
and ``saved``."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from holdfast.api.answers.overview_shapes import (
    DoingShape,
    NamesShape,
    NightLineShape,
    NightShape,
    OverviewShape,
    SavedShape,
    WaitingShape,
)
from holdfast.api.answers.shapes import EPOCH, Since
from holdfast.api.deps import Api, ApiDeps, ApiStore
from holdfast.api.figures.measuring import opened_within
from holdfast.api.guards.guarded import READERS, guarded_router
from holdfast.api.reads.status import StoreHealth, head_of, status_shape, vitals
from holdfast.api.shown.restraints import restraints_shape
from holdfast.api.shown.views import agent_statuses
from holdfast.decisions.overview import at_work, overview
from holdfast.decisions.parts import parts_of
from holdfast.metrics.night import MANUAL_MINUTES, MANUAL_SOURCE, night, saved
from holdfast.model.incidents.fleet import natural
from holdfast.model.notice import NOTE, PendingMessage
from holdfast.notice_note import read_state

MOST_INCIDENTS = 500
"""Of one answer; a span with more is answered with the newest."""
MOST_NAMES = 200
NIGHT = timedelta(hours=12)
SHOWN_DEFAULT = timedelta(days=30)
OfSince = Annotated[Since | None, Query(description="Start of the span (ISO 8601; UTC without an offset).")]


def overview_router(api: Api, health: StoreHealth) -> APIRouter:
    router = guarded_router(api, "reading", *READERS)
    deps, threads = api.deps, api.threads

    @router.get("/v1/overview", response_model=OverviewShape)
    async def everything(since: OfSince = None) -> Response:
        """What Holdfast does now and why, what waits for an operator, each part; with `since` also what happened since then."""
        ping_problem = await health.problem()
        return await threads.render(partial(overview_shape, deps, ping_problem, since))

    @router.get("/v1/night", response_model=NightShape)
    async def happened(since: OfSince = None, until: OfSince = None) -> Response:
        """Incidents of a span (default: the last 12 hours), each with what became of it; jobs, machines and GPU-hours in all."""
        end = until or deps.clock.now()
        return await threads.render(partial(night_shape, deps, since or _before(end, NIGHT), end))

    @router.get("/v1/saved", response_model=SavedShape)
    async def spared(
        since: OfSince = None,
        manual_minutes: Annotated[
            float,
            Query(gt=0, le=10_080, description="The site's own figure: from a failure to training again, by hand."),
        ] = MANUAL_MINUTES,
    ) -> Response:
        """An estimate of the downtime that recoveries without an operator have spared, against a figure for the same work by hand."""
        now = deps.clock.now()
        return await threads.render(
            partial(saved_shape, deps.store, since or _before(now, SHOWN_DEFAULT), now, manual_minutes)
        )

    @router.get("/v1/names", response_model=NamesShape)
    async def names(
        prefix: Annotated[str, Query(pattern="^[A-Za-z0-9._-]{0,252}$", description="How they begin.")] = "",
    ) -> Response:
        """Nodes and open incidents by the start of their names, for a shell's completion; 200 of each at most."""
        return await threads.render(lambda: names_shape(deps, prefix))

    return router


def _before(end: datetime, span: timedelta) -> datetime:
    return max(end - span, EPOCH)


def overview_shape(deps: ApiDeps, ping_problem: str | None, since: datetime | None) -> OverviewShape:
    seen, world = vitals(deps, ping_problem), deps.world()
    status = status_shape(seen, restraints_shape(world, seen.now, head_of(deps)))
    outbox = _outbox(deps.store) if ping_problem is None else ()
    now = overview(world, agent_statuses(world, deps.agents.views(), seen.now), parts_of(seen), outbox)
    return OverviewShape(
        **dict(status),
        at=seen.now,
        sentence=now.sentence,
        doing=[DoingShape.model_validate(d) for d in now.doing],
        waiting=[WaitingShape.model_validate(w) for w in now.waiting],
        watched=now.watched,
        nodes=dict(now.nodes),
        night=None if since is None or ping_problem is not None else night_shape(deps, since, seen.now),
    )


def _outbox(store: ApiStore) -> tuple[PendingMessage, ...]:
    return read_state(store.note(NOTE)).outbox


def night_shape(deps: ApiDeps, since: datetime, until: datetime) -> NightShape:
    """Incidents opened in the span, and those that were closed in it."""
    store, world = deps.store, deps.world()
    opened = store.incidents(since=since, limit=MOST_INCIDENTS + 1)
    mine = {i.id: i for i in opened[:MOST_INCIDENTS] if i.opened_at <= until}
    more = len(opened) > MOST_INCIDENTS
    if not more:
        mine |= {i.id: i for i in store.closed_within(since, until, MOST_INCIDENTS)}
    held = {each.incident_id: each.reason for each in at_work(world) if each.held} if world is not None else {}
    told = night(mine.values(), store.figures_of(mine, until), held)
    lines = [NightLineShape.model_validate(line) for line in told.lines]
    return NightShape(
        since=since,
        until=until,
        more=more,
        lines=lines,
        **{name: getattr(told, name) for name in _TOTALS},
    )


_TOTALS = ("incidents", "healed", "needs_you", "jobs", "jobs_back", "nodes_replaced", "lost_gpu_hours")


def saved_shape(store: ApiStore, since: datetime, until: datetime, manual_minutes: float) -> SavedShape:
    inside = [i for i in store.figures_since(since) if opened_within(i, since, until)]
    told = saved(inside, manual_minutes * 60)
    source = MANUAL_SOURCE if manual_minutes == MANUAL_MINUTES else "the figure that was given"
    return SavedShape(
        since=since,
        until=until,
        manual_minutes=manual_minutes,
        source=source,
        **{
            name: getattr(told, name)
            for name in ("incidents", "jobs", "down_s", "manual_s", "saved_s", "saved_gpu_hours")
        },
    )


def names_shape(deps: ApiDeps, prefix: str) -> NamesShape:
    """In natural order."""
    world = deps.world()
    nodes = {*(world.view.nodes if world is not None and world.view is not None else ()), *deps.agents.views()}
    found = sorted((n for n in nodes if n.startswith(prefix)), key=natural)[:MOST_NAMES]
    book = world.book.open_incidents() if world is not None else ()
    mine = [i for i in book if i.id.startswith(prefix)][:MOST_NAMES]
    about = {i.id: f"{i.node} {i.state}: {i.headline}"[:80] for i in mine}
    return NamesShape(nodes=found, incidents=[i.id for i in mine], about=about)
