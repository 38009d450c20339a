"""Puts the routers together."""

from __future__ import annotations

from functools import cache

from fastapi import FastAPI
from starlette.responses import JSONResponse, Response

from holdfast import __version__
from holdfast.api import errors
from holdfast.api.agents.enrol import enrol_router
from holdfast.api.agents.ingest import ingest_router
from holdfast.api.agents.rooms import rooms_router
from holdfast.api.agents.selfcheck import self_router
from holdfast.api.check_policy.checks import checks_router
from holdfast.api.check_policy.policies import policies_router
from holdfast.api.deps import Api, ApiDeps
from holdfast.api.figures.measuring import measuring_router
from holdfast.api.figures.overview import overview_router
from holdfast.api.guards.guarded import guarded_router
from holdfast.api.guards.strangers import StrangersLast
from holdfast.api.health import health_router
from holdfast.api.orders.budgets import budgets_router
from holdfast.api.orders.maintaining import maintaining_router, windows_router
from holdfast.api.orders.operating import operating_router
from holdfast.api.orders.proposing import proposing_router
from holdfast.api.orders.suppressing import suppressing_router
from holdfast.api.reads.node_routes import node_health_router, node_history_router, node_orders_router
from holdfast.api.reads.notices import notices_router
from holdfast.api.reads.reading import jobs_router, reading_router
from holdfast.api.reads.spares import spares_router
from holdfast.api.reads.status import StoreHealth, status_router
from holdfast.api.reads.streaming import streaming_router
from holdfast.api.replacing import replacing_router

DESCRIPTION = (
    "The resilience daemon for Slurm GPU clusters. Every error has one shape: `{error: {code, message, field}}`."
)


TAGS = [
    {"name": "health", "description": "Open to everybody."},
    {"name": "agents", "description": "Role `agent`, bound to one node."},
    {"name": "enrolment", "description": "Open where `[enrolment]` is on: a node without a token proves its machine."},
    {"name": "reading", "description": "Roles `viewer` and `operator`."},
    {"name": "jobs", "description": "Roles `viewer` and `operator`; role `user` sees the jobs of that user's uid."},
    {"name": "operating", "description": "Role `operator`."},
    {"name": "measuring", "description": "Roles `viewer` and `operator`."},
]


def create_app(deps: ApiDeps) -> FastAPI:
    """The controller's HTTP application. It starts nothing and owns nothing: the wiring closes what it handed in."""
    app = FastAPI(
        title="Holdfast",
        version=__version__,
        description=DESCRIPTION,
        openapi_url=None,
        openapi_tags=TAGS,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    errors.install(app)
    api = Api.of(deps)
    app.state.api = api
    app.add_middleware(StrangersLast, api=api)
    health, counters = StoreHealth(api), api.counters
    for router in (
        health_router(api, health),
        ingest_router(api, counters),
        enrol_router(api),
        rooms_router(api),
        self_router(api),
        reading_router(api),
        streaming_router(api),
        status_router(api, health),
        overview_router(api, health),
        node_health_router(api),
        spares_router(api),
        notices_router(api),
        node_history_router(api),
        node_orders_router(api),
        replacing_router(api),
        checks_router(api),
        policies_router(api),
        jobs_router(api),
        operating_router(api),
        suppressing_router(api),
        proposing_router(api),
        maintaining_router(api),
        windows_router(api),
        budgets_router(api),
        measuring_router(api, counters),
    ):
        app.include_router(router)
    description = guarded_router(api, "description")

    @cache
    def described() -> bytes:
        return bytes(JSONResponse(app.openapi()).body)

    @description.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return Response(described(), media_type="application/json")

    app.include_router(description)
    return app
