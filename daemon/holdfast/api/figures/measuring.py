"""Timings and losses over a window, from the events; and the same controller's figures for Prometheus."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from holdfast.api.answers.shapes import EPOCH, MetricsShape, SpreadShape
from holdfast.api.counters import ApiCounters
from holdfast.api.deps import Api, ApiStore
from holdfast.api.errors import ApiError
from holdfast.api.figures.exposing import Exposition
from holdfast.api.guards.guarded import READERS, guarded_router
from holdfast.api.shown.views import timings_shape
from holdfast.decisions.parts import not_leading
from holdfast.metrics.figures import IncidentFigures, summarize
from holdfast.metrics.timings import IncidentTimings, Spread

DEFAULT_WINDOW_S = 30 * 86400.0
MAX_WINDOW_S = 400 * 86400.0
"""Events are kept this long by default."""


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
        since = max(until - timedelta(seconds=window_s), EPOCH)
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
    found: Sequence[IncidentFigures | IncidentTimings] = (
        store.timings_since(since) if each else store.figures_since(since)
    )
    inside = [i for i in found if opened_within(i, since, until)]
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
        each=[timings_shape(i) for i in inside if isinstance(i, IncidentTimings)],
    )


def _spread(spread: Spread | None) -> SpreadShape | None:
    return None if spread is None else SpreadShape.model_validate(spread)


def opened_within(incident: IncidentFigures | IncidentTimings, since: datetime, until: datetime) -> bool:
    """Whether it was opened in the span, or was raised in it to one that calls for action."""
    return incident.opened_at is not None and since <= incident.opened_at <= until
