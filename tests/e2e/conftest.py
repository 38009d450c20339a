"""Complete sites for the end-to-end tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.postgres import postgres_binaries
from support.postgres_outage import MortalPostgres, mortal_postgres
from support.site import Drill, MakeDrill, raise_site, raze


@pytest.fixture
def make_drill(short_folder: Path) -> Iterator[MakeDrill]:
    """Makes sites for a single test; they are removed after it."""
    made: list[Drill] = []

    def make(**options: object) -> Drill:
        drill = raise_site(Path(tempfile.mkdtemp(prefix="e", dir=short_folder)), **options)
        made.append(drill)
        return drill

    yield make
    for drill in made:
        raze(drill)


@pytest.fixture(scope="module")
def _shared(short_folder: Path) -> Iterator[Drill]:
    drill = raise_site(Path(tempfile.mkdtemp(prefix="e", dir=short_folder)), nodes=5, spares=1, heartbeat_s=2.0)
    yield drill
    raze(drill)


@pytest.fixture
def drill(_shared: Drill) -> Drill:
    """The module's site, at rest: four working nodes, one spare."""
    _shared.calm()
    return _shared


@pytest.fixture
def own_postgres() -> Iterator[MortalPostgres]:
    """A PostgreSQL that is stopped in this test. Request it before ``make_drill``: it must outlive the site."""
    binaries = postgres_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed")
    with mortal_postgres(binaries) as server:
        yield server
