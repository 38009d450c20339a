"""A disk without a free byte, and a database that takes no write: the store reports it, damages nothing, and continues when it can."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.controller.loop import LEASE_TTL_S
from holdfast.controller.timing.cycles import SHOWN_AFTER
from holdfast.model.errors import Unavailable
from holdfast.store import SqlStore, open_store
from support.simulated import Site
from support.small_disk import SmallDisk, small_disk

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as mounted:
        yield mounted


@pytest.fixture
def small(disk: SmallDisk) -> Iterator[SqlStore]:
    opened = open_store(f"sqlite:///{disk.path}/holdfast.db")
    yield opened
    opened.close()


def lease(store: SqlStore) -> object:
    return store.take_lease("head/0123456789ab", NOW, LEASE_TTL_S)


def note(store: SqlStore) -> None:
    store.set_note("big", "x" * 200_000)


def test_a_full_disk_refuses_writes_and_not_reads(disk: SmallDisk, small: SqlStore) -> None:
    assert lease(small)
    disk.fill()
    with pytest.raises(Unavailable, match="full"):
        note(small)
    small.ping()
    assert small.lease() is not None
    disk.free()
    note(small)
    assert small.note("big") == "x" * 200_000


def turns(site: Site, number: int) -> None:
    """What :meth:`ControlLoop.run` does in a cycle, this many times."""
    for _ in range(number):
        site.clock.advance(1.0)
        try:
            site.loop._lead()
        except Unavailable as error:
            site.loop.cycles.ended(error)
        else:
            site.loop.cycles.passed()


def test_a_controller_on_a_full_disk_does_not_lead_and_says_why(disk: SmallDisk, small: SqlStore) -> None:
    site = Site(2, store=small)
    assert site.loop.leads
    disk.fill()
    with pytest.raises(Unavailable):
        note(small)
    turns(site, int(LEASE_TTL_S) + SHOWN_AFTER)
    assert not site.loop.leads
    assert "full" in (site.loop.trouble or "")
    disk.free()
    turns(site, 1)
    assert site.loop.leads
    assert site.loop.trouble is None


def _read_only(store: SqlStore) -> None:
    with store._writer._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA query_only = ON")


def test_a_controller_on_a_read_only_database(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/holdfast.db")
    site = Site(2, store=store)
    _read_only(store)
    turns(site, int(LEASE_TTL_S) + SHOWN_AFTER)
    assert not site.loop.leads
    assert "readonly" in (site.loop.trouble or "")
    store.close()
