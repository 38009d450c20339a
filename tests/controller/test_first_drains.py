"""A faulty node is drained on a reading of that node alone; all other steps wait for a reading of all of Slurm."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace

import pytest

from holdfast.controller import loop as loop_module
from holdfast.controller.observing import slurm_reader
from holdfast.model.errors import Unavailable
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.slurm.cluster import ClusterView, Node
from holdfast_checks.result import Remedy, Severity
from support.simulated.site import Site

PATIENCE_S = 30.0


class Slow:
    """Once it is asked for, a reading of all of Slurm takes as long as the test."""

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        self.site, self.slow, self.read = site, False, list[str]()
        monkeypatch.setattr(loop_module, "TICK_S", 0.05)
        monkeypatch.setattr(slurm_reader, "pause_s", lambda *_: 1000.0)
        plain_read, plain_node = site.loop.reader._read_all, site.slurm.node

        async def read_all() -> None:
            if self.slow:
                self.read.append("all")
                await asyncio.Event().wait()
            await plain_read()

        def node(name: str) -> Node:
            self.read.append(name)
            return plain_node(name)

        monkeypatch.setattr(site.loop.reader, "_read_all", read_all)
        monkeypatch.setattr(site.slurm, "node", node)

    def drive(self, happens: Callable[[], None], until: Callable[[], bool]) -> None:
        """The real loop: it turns once, Slurm becomes slow, eight seconds pass, and something happens."""
        loop = self.site.loop
        loop.wake = asyncio.Event()

        async def drill() -> None:
            running = asyncio.create_task(loop.run())
            try:
                async with asyncio.timeout(PATIENCE_S):
                    while loop.turned_at_s is None or loop.reader._done == 0:
                        await asyncio.sleep(0.01)
                    self.slow, loop.reader.took_s = True, 0.0  # on a busy machine the first one may have taken long
                    self.site.clock.advance(8)
                    happens()
                    loop.wake.set()
                    while not until() and not running.done():
                        await asyncio.sleep(0.01)
            finally:
                running.cancel()

        asyncio.run(drill())

    def planned(self) -> list[str]:
        return sorted(f"{i.kind} {i.action.target.node}" for i in self.site.store.due_intents())


@pytest.fixture
def site() -> Site:
    return Site(8, spares=("n7", "n8"))


@pytest.fixture
def slow(site: Site, monkeypatch: pytest.MonkeyPatch) -> Slow:
    return Slow(site, monkeypatch)


def test_a_drain_waits_for_no_reading_of_all_of_slurm(site: Site, slow: Slow) -> None:
    """Nor does the fault that is reported while the rest of the first one waits; nothing else is started meanwhile."""
    job = site.slurm.submit(2, comment="holdfast")
    first, second = job.nodes[0], "n6"

    def happens() -> None:
        site.fault(first)

    def until() -> bool:
        if f"Drain {first}" in slow.planned() and "all" in slow.read and second not in slow.read:
            site.fault(second)
            site.loop.wake.set()
        return f"Drain {second}" in slow.planned()

    slow.drive(happens, until)
    assert slow.planned() == sorted([f"Drain {first}", f"Drain {second}"])
    assert site.store.load_book(site.clock.now()).recoveries == {}


def test_a_fault_reported_right_before_the_reading_begins_does_not_wait_for_its_end(
    site: Site, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the loop's last poll of the reports, and before it waits for the reading."""
    first = site.slurm.submit(2, comment="holdfast").nodes[0]
    newer, late = site.loop.reader.newer, list[str]()

    def reading() -> Coroutine[None, None, None]:
        if slow.slow and not late:
            late.append("n6")
            site.fault("n6")
            site.loop.wake.set()
        return newer()

    monkeypatch.setattr(site.loop.reader, "newer", reading)
    monkeypatch.setattr(slurm_reader, "PATIENCE_S", 1000.0)
    slow.drive(lambda: site.fault(first), lambda: "Drain n6" in slow.planned())
    assert slow.planned() == sorted([f"Drain {first}", "Drain n6"])


class TestWithoutTheJobs:
    """All of Slurm cannot be read for minutes, as a user's texts make the listing of jobs too long; single nodes can."""

    def blind(self, site: Site, slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
        def view() -> ClusterView:
            slow.read.append("all")
            raise Unavailable("squeue -h did not answer within 10 s")

        monkeypatch.setattr(site.slurm, "view", view)
        site.loop.reader.slurm.refresh()
        assert site.loop.reader.blind
        for _ in range(30):
            site.clock.advance(10)
            site.world_moves()

    def test_a_fault_drains_its_node(self, site: Site, slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
        job = site.slurm.submit(2, comment="holdfast")

        def happens() -> None:
            self.blind(site, slow, monkeypatch)
            site.fault(job.nodes[0])

        slow.drive(happens, lambda: bool(slow.planned()))
        assert slow.planned() == [f"Drain {job.nodes[0]}"]
        assert site.store.load_book(site.clock.now()).recoveries == {}

    def test_an_incident_that_is_open_already_is_drained_for(
        self, site: Site, slow: Slow, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its first turn may have begun something else, or Slurm have answered nothing at all."""
        plain, away = site.slurm.node, [True]

        def node(name: str) -> Node:
            if away:
                raise Unavailable(name)
            return plain(name)

        monkeypatch.setattr(site.slurm, "node", node)

        def happens() -> None:
            self.blind(site, slow, monkeypatch)
            site.fault("n1")

        def until() -> bool:
            if site.store.incidents(node="n1"):
                away.clear()
            return bool(slow.planned())

        slow.drive(happens, until)
        assert slow.planned() == ["Drain n1"]

    def test_a_node_that_an_operator_has_drained_meanwhile_is_left(
        self, site: Site, slow: Slow, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def happens() -> None:
            self.blind(site, slow, monkeypatch)
            site.slurm.drain("n1", "a fan (bob)")
            site.fault("n1")

        slow.drive(happens, lambda: slow.read.count("n1") > 2)
        assert slow.planned() == []

    def test_no_more_than_one_thread_waits_for_slurm(
        self, site: Site, slow: Slow, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hangs, asked = threading.Event(), list[str]()
        monkeypatch.setattr(slurm_reader, "NODES_PATIENCE_S", 0.01)

        def node(name: str) -> Node:
            asked.append(name)
            hangs.wait(PATIENCE_S)
            raise Unavailable(name)

        monkeypatch.setattr(site.slurm, "node", node)
        turns = list[int]()
        plain = site.loop.observer.world
        monkeypatch.setattr(site.loop.observer, "world", lambda: turns.append(1) or plain())  # type: ignore[func-returns-value]

        def happens() -> None:
            self.blind(site, slow, monkeypatch)
            site.fault("n1")
            turns.clear()

        def until() -> bool:
            if len(turns) > 8:
                hangs.set()  # the event loop ends once its threads have ended
            return hangs.is_set()

        slow.drive(happens, until)
        assert asked == ["n1"]


def _whole(slow: Slow) -> Callable[[], bool]:
    return lambda: "all" in slow.read


def test_a_node_that_an_operator_has_drained_since_waits(site: Site, slow: Slow) -> None:
    def happens() -> None:
        site.slurm.drain("n1", "a fan (bob)")
        site.fault("n1")

    slow.drive(happens, _whole(slow))
    assert slow.read[0] == "n1"
    assert slow.planned() == []


def test_many_faults_at_once_wait(site: Site, slow: Slow) -> None:
    def happens() -> None:
        for number in range(1, 6):
            site.fault(f"n{number}")

    slow.drive(happens, _whole(slow))
    assert slow.planned() == []
    assert slow.read[0] == "all"


def test_a_node_that_slurm_does_not_show_waits(site: Site, slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    def node(name: str) -> Node:
        raise Unavailable(name)

    monkeypatch.setattr(site.slurm, "node", node)
    slow.drive(lambda: site.fault("n1"), _whole(slow))
    assert slow.planned() == []


def test_what_begins_something_besides_waits(site: Site, slow: Slow) -> None:
    """The warning of another node would open a separate incident."""

    def happens() -> None:
        site.fault("n2", severity=Severity.DEGRADED, remedy=Remedy.REBOOT)
        site.fault("n1")

    slow.drive(happens, _whole(slow))
    assert slow.planned() == []


def test_a_pause_and_the_observe_mode_hold_the_first_drain(site: Site, slow: Slow) -> None:
    site.operate("pause")
    slow.drive(lambda: site.fault("n1"), _whole(slow))
    assert slow.planned() == []


def test_a_brake_holds_the_first_drain(site: Site, slow: Slow) -> None:
    tight = replace(site.policy.brake, drains_10min=1, drains_60min=1, drains_10min_share=0.0, drains_60min_share=0.0)
    site.loop.observer.policy = replace(site.policy, brake=tight)
    drained: list[str] = []

    def until() -> bool:
        if slow.planned() and not drained:
            drained.extend(slow.planned())
            site.fault("n2")
            site.loop.wake.set()
        return bool(drained) and "n2" in slow.read

    slow.drive(lambda: site.fault("n1"), until)
    assert drained == ["Drain n1"]
    assert slow.planned() == ["Drain n1"]
    assert {i.state for i in site.store.incidents(node="n1")} == {IncidentState.OPEN}
