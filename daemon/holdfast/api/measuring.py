"""Timings and losses over a window, from the events; and the same controller's figures for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from holdfast.api.counters import ApiCounters
from holdfast.api.deps import Api, ApiStore
from holdfast.api.errors import ApiError
from holdfast.api.exposing import Exposition
from holdfast.api.guarded import READERS, guarded_router
from holdfast.api.shapes import EPOCH, MetricsShape, SpreadShape
from holdfast.api.views import timings_shape
from holdfast.decisions.parts import not_leading
from holdfast.metrics.timings import KINDS, Spread, measure, summarize
from holdfast.model.event import Event, EventKind

DEFAULT_WINDOW_S = 30 * 86400.0
MAX_WINDOW_S = 400 * 86400.0
"""Events are kept this long by default."""
EARLY = timedelta(hours=1)
"""A fault this long before the window still gives the detection time of an incident that was opened in it."""
PAGE = 25_000


def measuring_router(api: Api, counters: ApiCounters) -> APIRouter:
    router, exposition = guarded_router(api, "measuring", *READERS), Exposition(api.deps, counters)

    @router.get("/v1/metrics", response_model=MetricsShape)
    async def metrics(
        window_s: Annotated[
            float, Query(gt=0, le=MAX_WINDOW_S, description="Length of the window, ending now.")
        ] = DEFAULT_WINDOW_S,
        each: Annotated[bool, Query(description="Also every incident's own timings.")] = False,
    ) -> Response:
        """MTTD, MTTR, phases and losses of the incidents opened within the window (docs/metrics.md)."""
        until = api.deps.clock.now()
        since = max(until - timedelta(seconds=window_s), EPOCH + EARLY)
        return await api.threads.render(partial(window, api.deps.store, since, until, each=each))

    plain: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {}}}}

    @router.get("/metrics", response_class=Response, responses=plain)
    async def prometheus() -> Response:
        """Prometheus text: of this process and, where it leads, of the cluster."""
        return Response(await api.threads.read(exposition.everything), media_type=CONTENT_TYPE_LATEST)

    @router.get("/metrics/cluster", response_class=Response, responses=plain)
    async def prometheus_of_cluster() -> Response:
        """Prometheus text of the cluster alone; 503 on a controller that does not lead."""
        deps = api.deps
        why = not_leading(leads=deps.leader(), led_by=deps.led_by(), trouble=deps.trouble(), disk=deps.disk())
        if why is not None:
            raise ApiError(503, "unavailable", why)
        return Response(await api.threads.read(exposition.of_cluster), media_type=CONTENT_TYPE_LATEST)

    return router


def window(store: ApiStore, since: datetime, until: datetime, *, each: bool) -> MetricsShape:
    """Incidents opened between ``since`` and ``until``."""
    measured = measure(kept_events(store, since - EARLY))
    inside = [i for i in measured if i.opened_at is not None and since <= i.opened_at <= until]
    summary = summarize(inside)
    return MetricsShape(
        since=since,
        until=until,
        incidents=summary.incidents,
        mttd=_spread(summary.mttd),
        mttr=_spread(summary.mttr),
        mttr_resumed=_spread(summary.mttr_resumed),
        time_to_return=_spread(summary.time_to_return),
        phases={p.value: SpreadShape.model_validate(s) for p, s in summary.phases.items()},
        lost_work_s=summary.lost_work_s,
        lost_steps=summary.lost_steps,
        lost_gpu_hours=summary.lost_gpu_hours,
        each=[timings_shape(i) for i in inside] if each else [],
    )


def _spread(spread: Spread | None) -> SpreadShape | None:
    return None if spread is None else SpreadShape.model_validate(spread)


def kept_events(store: ApiStore, since: datetime, kinds: tuple[EventKind, ...] = KINDS) -> Iterator[Event]:
    """Events of incidents that timings are computed from, oldest first, page by page."""
    after_id = 0
    while True:
        page = store.events(since=since, after_id=after_id, kinds=kinds, limit=PAGE, of_incidents=True)
        yield from page
        if len(page) < PAGE:
            return
        after_id = max(e.id for e in page)
