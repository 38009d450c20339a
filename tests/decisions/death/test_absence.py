"""A node, job or hold missing from one reading of Slurm is not gone: two readings apart must lack it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from holdfast.controller.observing import slurm_reader
from holdfast.model.errors import Unavailable
from holdfast.model.incidents.incident import RecoveryPhase
from holdfast.model.slurm.absence import Missing
from holdfast.model.slurm.cluster import ClusterView
from support.simulated.site import Site


class Torn:
    """Answers of Slurm that lack something for the next ``count`` readings."""

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.readings = 0
        plain = site.loop.observer.slurm.scheduler.view

        def view() -> ClusterView:
            self.readings += 1
            whole = plain()
            if not self.count:
                return whole
            self.count -= 1
            return replace(whole, nodes={}, jobs={}, reservations={})

        monkeypatch.setattr(site.loop.observer.slurm.scheduler, "view", view)


@pytest.fixture
def site() -> Site:
    return Site(4, spares=("n4",))


@pytest.fixture
def torn(site: Site, monkeypatch: pytest.MonkeyPatch) -> Torn:
    return Torn(site, monkeypatch)


def test_one_torn_answer_gives_no_job_and_no_drain_up(site: Site, torn: Torn) -> None:
    site.slurm.submit(2)
    site.fault("n1")
    site.run(5)
    phases = [r.phase for r in site.book.recoveries.values()]
    assert phases == [RecoveryPhase.AWAITING_CONSENT]
    torn.count = 1
    site.turn()
    site.run(3)
    assert [r.phase for r in site.book.recoveries.values()] == phases
    assert [i.drain_lost_at for i in site.book.open_incidents()] == [None]


def test_what_two_readings_lack_is_gone(site: Site, torn: Torn) -> None:
    site.slurm.submit(2)
    site.fault("n1")
    site.run(5)
    torn.count = 2
    site.turn()
    site.turn()
    assert [r.phase for r in site.book.recoveries.values()] == [RecoveryPhase.GONE]
    assert [i.drain_lost_at is None for i in site.book.open_incidents()] == [False]


def test_the_first_view_is_of_two_readings(site: Site, torn: Torn) -> None:
    """A controller that starts has no reading before to compare with."""
    watch = site.loop.observer.slurm
    for torn.count in (1, 0):
        watch.view, watch.missing = None, Missing()
        watch.refresh()
        assert watch.view is not None
        assert set(watch.view.nodes) == {"n1", "n2", "n3", "n4"}


def test_a_reading_that_lacks_something_is_repeated_at_once(
    site: Site, torn: Torn, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.slurm.submit(2)
    site.turn()
    monkeypatch.setattr(slurm_reader, "pause_s", lambda *_: 1000.0)
    torn.count, torn.readings = 1, 0

    async def read() -> None:
        reading = asyncio.create_task(site.loop.reader.run())
        while torn.readings < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        reading.cancel()

    asyncio.run(asyncio.wait_for(read(), 20))
    assert torn.readings == 2
    assert not site.loop.observer.slurm.lacks_something


def test_a_job_that_had_ended_goes_without_another_reading(site: Site, torn: Torn) -> None:
    job = site.slurm.submit(2).job_id
    site.turn()
    watch = site.loop.observer.slurm
    assert watch.view is not None
    ended = replace(watch.view.jobs[job], state="COMPLETED")
    watch.view = replace(watch.view, jobs={**watch.view.jobs, 99: replace(ended, key=replace(ended.key, job_id=99))})
    watch.refresh()
    assert watch.missing == Missing(jobs=frozenset({99}))
    assert not watch.lacks_something


def test_slurm_that_does_not_answer_lacks_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.turn()

    def away() -> ClusterView:
        raise Unavailable("away")

    watch = site.loop.observer.slurm
    monkeypatch.setattr(watch.scheduler, "view", away)
    watch.refresh()
    assert watch.error is not None
    assert watch.missing == Missing()
