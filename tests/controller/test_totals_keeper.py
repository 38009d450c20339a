"""The keeper of the totals: what it shows survives restarts, failovers and pruning, and costs the store little."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.controller.keeping import totals_keeper
from holdfast.controller.keeping.totals_keeper import CLUSTER_NOTE, NOTE, SAVE_EVERY_S, TotalsKeeper
from holdfast.metrics.tally import Tally
from holdfast.model.book import Change
from holdfast.model.event import Event, EventKind
from holdfast.store import SqlStore, open_store
from support.simulated import Site
from support.simulated.clock import SimClock

K = EventKind
FAULT = {"check": "gpu.xid", "code": "79", "kind": "fault", "remedy": "replace"}


class Head:
    """A store that counts what it reads, and the process that leads."""

    def __init__(self, store: SqlStore) -> None:
        self.store, self.clock = store, SimClock()
        self.fence: int | None = None
        self.lead()
        self.read = 0
        events = store.events

        def counting(**asked: Any) -> tuple[Event, ...]:
            found = events(**asked)
            self.read += len(found)
            return found

        store.events = counting  # type: ignore[method-assign]

    def lead(self, holder: str = "head1") -> None:
        lease = self.store.take_lease(holder, self.clock.now(), 1e-6)
        assert lease is not None
        self.fence = lease.fence
        self.clock.advance(1)

    def keeper(self) -> TotalsKeeper:
        fence = self.fence
        return TotalsKeeper(self.store, self.clock, lambda: fence, "ec2")

    def faults(self, count: int, node: str = "n1") -> None:
        at = self.clock.now()
        made = [Event(at, K.FAULT_OCCURRED, f"i{k}", node, detail=FAULT) for k in range(count)]
        assert self.fence is not None
        self.store.commit(Change(events=tuple(made)), self.fence)


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    store = open_store(f"sqlite:///{tmp_path}/holdfast.db")
    yield Head(store)
    store.close()


def shown(keeper: TotalsKeeper) -> float:
    while keeper.read_on():
        pass
    assert keeper.shown is not None
    return sum(keeper.shown.counters.get("holdfast_faults_total", {}).values())


def test_nothing_is_shown_before_the_record_is_read(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals_keeper, "PAGE", 10)
    head.faults(25)
    keeper = head.keeper()
    assert keeper.read_on()
    assert keeper.shown is None
    assert shown(keeper) == 25


def test_a_scrape_reads_nothing_and_a_refresh_only_what_is_new(head: Head) -> None:
    head.faults(20)
    keeper = head.keeper()
    shown(keeper)
    head.faults(3)
    before = head.read
    assert (shown(keeper), head.read - before) == (23, 3)
    assert (shown(keeper), head.read - before) == (23, 3)


def test_a_restart_reads_only_what_came_after_the_note(head: Head) -> None:
    head.faults(20)
    shown(head.keeper())
    head.faults(2)
    before = head.read
    again = head.keeper()
    assert shown(again) == 22
    assert head.read - before <= 22 + 2, "the new ones, and those of incidents that are followed"


def test_pruned_events_stay_counted(head: Head) -> None:
    head.faults(20)
    keeper = head.keeper()
    shown(keeper)
    head.store.prune(head.clock.now() + timedelta(days=500))
    assert head.store.events() == ()
    assert shown(keeper) == 20
    assert shown(head.keeper()) == 20, "also of the next controller"


def test_the_note_is_written_now_and_then(head: Head) -> None:
    head.faults(1)
    keeper = head.keeper()
    shown(keeper)
    first = head.store.note(NOTE)
    assert first is not None, "at once, where there was none"
    head.faults(1)
    shown(keeper)
    assert head.store.note(NOTE) == first
    head.clock.advance(SAVE_EVERY_S)
    shown(keeper)
    assert head.store.note(NOTE) != first


def test_a_controller_that_lost_its_lease_shows_nothing_and_writes_nothing(head: Head) -> None:
    head.faults(1)
    old = head.keeper()
    shown(old)
    head.lead("head2")
    head.faults(1)
    new = head.keeper()
    assert shown(new) == 2
    written = head.store.note(NOTE)
    head.clock.advance(SAVE_EVERY_S)
    old.read_on()  # it does not know yet
    assert (old.shown, head.store.note(NOTE)) == (None, written)
    old.fence = lambda: None
    old.read_on()
    assert old.shown is None


def test_a_note_of_another_release_is_counted_again_from_the_store(head: Head) -> None:
    head.store.set_note(NOTE, '{"version": 99}')
    head.faults(4)
    assert shown(head.keeper()) == 4


def test_a_standby_knows_the_name_of_the_cluster(head: Head) -> None:
    leader = head.keeper()
    leader.slurms_name = lambda: "c1"
    leader.read_on()
    assert head.store.note(CLUSTER_NOTE) == "c1"
    standby = TotalsKeeper(head.store, head.clock, lambda: None)
    standby.read_on()
    assert (standby.cluster, standby.shown) == ("c1", None)


def test_a_recovery_of_the_real_loop_is_the_same_after_restarts_at_any_time() -> None:
    site = Site(6, spares=("n6",))
    job = site.slurm.submit(2, gpus=8)
    site.run(5)
    site.registers(job)
    steady = TotalsKeeper(site.store, site.clock, lambda: site.loop.lease.fence if site.loop.lease else None)
    restarted: Tally | None = None
    site.fault(site.slurm.jobs[job.job_id].nodes[0])
    for _ in range(40):
        site.run(60)
        steady.read_on()
        fresh = replace(steady, shown=None, _totals=None, _saved_cursor=0)
        fresh.read_on()
        restarted = fresh.shown
    assert steady.shown is not None
    assert restarted is not None
    assert restarted.dump() == steady.shown.dump()
    assert {"holdfast_time_to_detect_seconds", "holdfast_node_out_of_service_seconds"} <= set(steady.shown.histograms)
    assert steady.shown.counters["holdfast_jobs_requeued_total"] == {("fault",): 1.0}, site.story()
    assert steady.shown.counters["holdfast_gpu_seconds_lost_total"]
