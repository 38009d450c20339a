"""Puts the routers together."""

from __future__ import annotations

from fastapi import FastAPI

from holdfast import __version__
from holdfast.api import errors
from holdfast.api.counters import Counters
from holdfast.api.deps import Api, ApiDeps
from holdfast.api.ingest import ingest_router


def create_app(deps: ApiDeps) -> FastAPI:
    """The controller's HTTP application. It starts nothing and owns nothing: the wiring closes what it handed in."""
    app = FastAPI(
        title="Holdfast",
        version=__version__,
        description="The resilience daemon for Slurm GPU clusters.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    errors.install(app)
    api = Api.of(deps)
    counters = Counters()
    app.include_router(ingest_router(api, counters))
    return app
