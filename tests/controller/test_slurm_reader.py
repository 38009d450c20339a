"""How often Slurm is read, and that no step starts on an old reading."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import cast

import pytest

from holdfast.controller import loop as loop_module
from holdfast.controller.loop import ControlLoop
from holdfast.controller.observing import slurm_reader
from holdfast.controller.observing.slurm_reader import (
    BUSY_S,
    IDLE_S,
    SlurmReader,
    begins_something,
    is_event,
    moving_jobs,
    pause_s,
)
from holdfast.controller.timing.elastic_pace import ELASTIC_S, MOVES_BURST, ElasticPace
from holdfast.controller.timing.job_pace import LONGEST_S, MOST_JOBS, SHORTEST_S, JobPace
from holdfast.controller.timing.job_pace import pause_s as job_pause_s
from holdfast.controller.timing.job_reads import LOOKED_FOR_MAX, LOOKS_BURST, LOOKS_PER_S, Looks
from holdfast.decisions.common.elastic_jobs import elastic_jobs
from holdfast.decisions.common.node_agents import order_to
from holdfast.head.controller_main import _rung
from holdfast.head.serving import Controller
from holdfast.model.actions import steps
from holdfast.model.actions.action import Action, CheckInstance, Drain, Intent, IntentState, Notify, Verb
from holdfast.model.actions.steps import StepKey
from holdfast.model.book import Change
from holdfast.model.incidents.incident import IncidentState, RecoveryPhase
from holdfast.model.policies.policy import Policy
from holdfast.model.slurm.cluster import ClusterView
from holdfast_checks.result import Remedy, Severity
from support.simulated import EPOCH
from support.simulated.arrays import ElasticSite
from support.simulated.site import Site
from support.simulated.slurm import SimJob

MAX_AGE_S = Policy().view_max_age_s
PATIENCE_S = 30.0


@pytest.mark.parametrize(
    ("since_event_s", "took_s", "pause"),
    [
        (0.0, 0.02, BUSY_S),
        (2.0, 0.02, BUSY_S),
        (20.0, 0.02, 2.0),
        (3600.0, 0.02, pytest.approx(IDLE_S, abs=0.1)),
        (0.0, 0.7, pytest.approx(7.0)),
        (3600.0, 4.0, pytest.approx(6.0)),
        (3600.0, 60.0, BUSY_S),
    ],
)
def test_slurm_is_read_ever_more_seldom_and_never_faster_than_it_answers(
    since_event_s: float, took_s: float, pause: float
) -> None:
    assert pause_s(since_event_s, took_s, MAX_AGE_S) == pause


@pytest.mark.parametrize("took_s", [0.02, 0.5, 2.0, 4.0])
def test_a_view_never_ages_until_decisions_freeze(took_s: float) -> None:
    """A view's age counts from before its first question: it is replaced after a pause and one more reading."""
    for max_age_s in (MAX_AGE_S, 60.0):
        assert took_s + pause_s(3600.0, took_s, max_age_s) + took_s <= max_age_s


def test_an_elastic_job_is_followed_each_second() -> None:
    assert pause_s(3600.0, 0.02, MAX_AGE_S, ELASTIC_S) == 1.0


@pytest.mark.parametrize("why", ["runs", "may start", "held", "begins later", "depends"])
def test_an_elastic_job_is_followed_while_it_moves(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One array with an elastic comment that was held, waited or just ran had all of Slurm read each second, for good."""
    site = ElasticSite(2)
    begin = None if why in ("runs", "may start", "depends") else site.clock.now() + timedelta(days=1)
    array = site.slurm.submit_array(
        range(2),
        num_nodes=2 if why == "may start" else 1,
        required=("n1", "n9") if why == "may start" else (),
        comment="holdfast elastic=1:2",
        begin=begin,
        dependency="after:1" if why == "depends" else "",
    )
    for element in site.slurm.elements(array) if why == "held" else ():
        element.held, element.begin = True, None
    site.slurm.schedule()
    site.run(3)
    often = why in ("runs", "may start")
    reader = SlurmReader(site.loop.observer.slurm, lambda: MAX_AGE_S, lambda: None, lambda: site.loop.world)
    monkeypatch.setattr(reader, "_since_event_s", lambda: 3600.0)
    assert [job.moves for job in elastic_jobs(site.slurm.view())] == [often]
    shown = []
    for now_s in (1000.0, 1005.0, 1050.0, 1100.0, 5000.0):
        monkeypatch.setattr(slurm_reader, "_now_s", lambda now_s=now_s: now_s)
        shown.append(reader._pause_s())
    assert shown == pytest.approx([1.0, 1.0, 5.0, 10.0, 10.0] if often else [IDLE_S] * 5)


def test_moves_of_one_users_elastic_jobs_have_slurm_read_so_often_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    site = ElasticSite(4)
    site.slurm.submit_array(range(2), num_nodes=1, comment="holdfast elastic=1:2", uid=6666)
    site.slurm.submit_array(range(2), num_nodes=1, comment="holdfast elastic=1:2", uid=1000)
    site.run(3)
    restless, calm = sorted(elastic_jobs(site.slurm.view()), key=lambda j: -j.groups[0].job.uid)
    pace, reads, now_s = ElasticPace(), 0, 0.0
    while now_s < 7200.0:
        groups = tuple(replace(g, job=replace(g.job, restarts=int(now_s))) for g in restless.groups)
        now_s += min(pace.longest_s((replace(restless, groups=groups), calm), now_s), IDLE_S)
        reads += 1
    assert reads < 0.25 * 7200 + MOVES_BURST * 35
    groups = tuple(replace(g, job=replace(g.job, restarts=1)) for g in calm.groups)
    assert pace.longest_s((restless, replace(calm, groups=groups)), now_s) == ELASTIC_S, "another user's counts"


def test_what_a_users_failed_job_has_read_and_probed_is_no_event() -> None:
    """A user's jobs that failed, one every 8 s, had all of Slurm read once a second."""
    site = Site(6)
    site.run(5)
    plain, events = site.turn, list[Change]()

    def turn() -> Change | None:
        change = plain()
        assert site.loop.world is not None
        if change is not None and is_event(site.loop.world, change):
            events.append(change)
        return change

    site.turn = turn  # type: ignore[method-assign]
    for _ in range(6):
        job = site.slurm.submit(2, comment="holdfast", user="mal", uid=6666)
        site.run(3)
        site.slurm.finish(job, "FAILED")
        site.run(5)
    site.run(60)
    assert [i.state for i in site.store.incidents()] == [IncidentState.CLOSED] * 4
    assert events == []


def test_what_only_looks_or_tells_needs_no_newer_view() -> None:
    site = Site(4)
    site.run(3)
    assert site.loop.world is not None
    agent = next(iter(site.loop.world.agents["n4"]))
    needed = {
        verb: begins_something(Change(intents=(_planned(order_to(agent, verb, 60.0, {})),)))
        for verb in (Verb.OUTPUT, Verb.EVIDENCE, Verb.STACKS, Verb.PROBE_PAIR, Verb.END_JOB)
    }
    assert [verb for verb, newer in needed.items() if newer] == [Verb.PROBE_PAIR, Verb.END_JOB]
    assert not begins_something(Change(intents=(_planned(Notify("n1 needs an operator", "look")),)))
    assert begins_something(Change(intents=(_planned(Drain("n1", "x")),)))


def _planned(action: Action) -> Intent:
    step = steps.notify_no_machine()
    return Intent(StepKey("1kjmmb0rr001", step, 1).text, "1kjmmb0rr001", action, "", 1, IntentState.PLANNED, EPOCH)


def test_a_job_on_its_way_is_read_often_then_as_seldom_as_all_of_slurm() -> None:
    shown = [job_pause_s(s) for s in (0.0, 2.0, 7.0, 52.0, 102.0, 3600.0)]
    assert shown == [SHORTEST_S, SHORTEST_S, pytest.approx(0.5), pytest.approx(5.0), LONGEST_S, LONGEST_S]
    assert (LONGEST_S, job_pause_s(0.0, took_s=0.7)) == (IDLE_S, 0.7), "a slow slurmctld is asked less"


def _readings(pace: JobPace, jobs: int, seconds: float, *, full_s: float = 1e9) -> list[float]:
    """Times at which any of this many jobs is read alone."""
    read: list[float] = []
    now_s, next_full_s = 0.0, full_s
    pace.follow({n: (n,) for n in range(jobs)}, now_s)
    while now_s < seconds:
        if now_s >= next_full_s:
            pace.all_read(now_s)
            next_full_s = now_s + full_s
        due = pace.due(now_s)
        read += [now_s] * len(due)
        pace.read(due, now_s, 0.02)
        now_s += max(0.01, min(pace.next_s(now_s), next_full_s - now_s))
    return read


def test_a_job_that_waits_for_a_node_costs_ever_less() -> None:
    """Slurm was asked five times a second for as long as one recovered job waited."""
    read = _readings(JobPace(), 1, 400.0)
    assert len([at for at in read if at < 2.0]) > 50
    assert len([at for at in read if 40 <= at < 70]) <= 8
    assert len([at for at in read if 100 <= at < 160]) <= 6


def test_a_reading_of_all_of_slurm_is_one_of_each_job() -> None:
    assert not [at for at in _readings(JobPace(), 3, 400.0, full_s=5.0) if at > 60]


def test_the_jobs_that_moved_last_are_read() -> None:
    pace = JobPace()
    pace.follow({n: (n,) for n in range(MOST_JOBS)}, 0.0)
    pace.follow({n: (n,) for n in range(MOST_JOBS + 1)}, 100.0)
    assert (pace.due(100.0)[0], len(pace.due(100.0))) == (MOST_JOBS, MOST_JOBS)


def _waits_for_a_node(site: Site) -> SimJob:
    job = site.slurm.submit(1, comment="holdfast", exclusive=True, excluded=("n2", "n3", "n4"))
    site.run(5)
    site.fault("n1")
    site.run(2)
    site.slurm.operator_drains("n1")
    site.run(40)
    assert (job.state, site.recovery(job.job_id).phase) == ("PENDING", RecoveryPhase.RESTARTING)
    return job


def test_another_reason_to_wait_is_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm's scheduler changes the reason, the priority and the expected start of a job that waits, pass for pass."""
    site = Site(4)
    job = _waits_for_a_node(site)
    now_s = 1000.0
    monkeypatch.setattr(slurm_reader, "_now_s", lambda: now_s)
    reader = site.loop.reader
    reader.event()
    assert site.loop.world is not None
    reader.turned(site.loop.world, Change())
    assert reader._jobs_due() == [job.job_id]
    now_s = 1500.0
    known = site.recovery(job.job_id)
    noted = replace(known, note="another reason")
    reader.turned(site.loop.world, Change(recoveries=(noted,)))
    job.start = site.clock.now()
    asyncio.run(reader._read_jobs([job.job_id]))
    assert reader._pause_s() == pytest.approx(IDLE_S, abs=0.1)
    assert reader._pace.next_s(now_s) == LONGEST_S
    moved = replace(known, phase=RecoveryPhase.RUNNING)
    reader.turned(site.loop.world, Change(recoveries=(moved,)))
    assert reader._pause_s() == BUSY_S
    assert reader._pace.next_s(now_s) == pytest.approx(SHORTEST_S)


def test_what_waits_keeps_the_pace_low(monkeypatch: pytest.MonkeyPatch) -> None:
    """One job that awaited consent had Slurm read three times a second for as long as it ran."""
    site = Site(4)
    site.slurm.submit(2)
    site.fault("n1")
    site.run(5)
    now_s = 0.0
    monkeypatch.setattr(slurm_reader, "_now_s", lambda: now_s)
    reader = site.loop.reader
    assert site.loop.world is not None
    assert [r.phase for r in site.book.recoveries.values()] == [RecoveryPhase.AWAITING_CONSENT]
    reader.event()
    for _ in range(400):
        now_s += 1.0
        change = site.turn()
        assert change is not None
        reader.turned(site.loop.world, change)
    assert moving_jobs(site.loop.world) == {}
    assert reader._pause_s() == pytest.approx(IDLE_S, abs=0.1)


def _looks(ask: Callable[[float], int], seconds: float, each_s: float = 0.05) -> list[float]:
    """Times at which a request for the job that ``ask`` names has Slurm read."""
    looks, found, now_s = Looks(), list[float](), 100.0
    while now_s < 100.0 + seconds:
        if looks.allow(ask(now_s), now_s):
            found.append(now_s - 100.0)
        now_s += each_s
    return found


def test_one_job_that_asks_and_asks_has_slurm_read_ever_more_seldom() -> None:
    """A loop of requests had all of Slurm read four times a second for as long as the job ran."""
    found = _looks(lambda _now_s: 7, 3600.0)
    assert found[:4] == pytest.approx([0, 1, 3, 7], abs=0.2)
    assert len(found) <= 6 + 3600 / 60


def test_all_questions_together_have_slurm_read_no_more_than_a_tenth_of_a_time_a_second() -> None:
    found = _looks(lambda now_s: int(now_s * 20), 3600.0)
    assert len(found) <= LOOKS_BURST + 3600 * LOOKS_PER_S + 1
    assert LOOKS_PER_S + 1 / IDLE_S <= 0.2
    assert all(b - a >= 1.0 - 1e-6 for a, b in pairwise(found))


def test_a_job_that_asked_long_ago_is_new_again() -> None:
    looks = Looks()
    assert [looks.allow(7, at_s) for at_s in (0.0, 1.5, 2.0, 4.0)] == [True, True, False, True]
    assert [looks.allow(7, 4000.0 + at_s) for at_s in (0.0, 1.5)] == [True, True]
    for n in range(3 * LOOKED_FOR_MAX):
        looks.allow(n, 5000.0 + 20 * n)
    assert len(looks._jobs) <= LOOKED_FOR_MAX


def test_a_question_has_slurm_read_once_and_is_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an event Slurm is read often for minutes."""
    site = Site(4)
    now_s = 0.0
    monkeypatch.setattr(slurm_reader, "_now_s", lambda: now_s)
    reader = site.loop.reader
    reader.event()
    now_s = 500.0
    reader.asked_for(7)
    assert reader.look.is_set()
    assert reader._pause_s() > 9
    reader.look.clear()
    reader.asked_for(7)
    assert not reader.look.is_set()


def test_an_outcome_of_a_step_is_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(4)
    site.fault("n1")
    change = site.turn()
    assert change is not None
    now_s = 0.0
    monkeypatch.setattr(slurm_reader, "_now_s", lambda: now_s)
    reader, world = site.loop.reader, site.loop.observer.world()
    reader.turned(world, replace(change, incidents=(), recoveries=(), intents=()))
    now_s = 500.0
    assert reader._pause_s() > 9
    reader.turned(world, replace(change, incidents=(), recoveries=(), intents=()))
    assert reader._pause_s() > 9, "the step is still under way"
    site.act()
    reader.turned(site.loop.observer.world(), replace(change, incidents=(), recoveries=(), intents=()))
    assert reader._pause_s() == BUSY_S


def test_a_message_and_a_check_of_a_spare_leave_the_pace_low(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each page Slurm was read 25 times."""
    site = Site(4, spares=("n4",))
    site.run(30)
    now_s = 0.0
    monkeypatch.setattr(slurm_reader, "_now_s", lambda: now_s)
    reader = site.loop.reader
    assert site.loop.world is not None
    reader.event()
    reader.turned(site.loop.world, Change())
    now_s = 500.0
    kinds: list[type[Action]] = []
    agent = next(iter(site.loop.world.agents["n4"]))
    for action in (
        Notify("n1 needs an operator", "look"),
        order_to(agent, Verb.VALIDATE, 60.0, {}),
        CheckInstance("i-0001", "n1"),
    ):
        step = steps.notify_no_machine()
        intent = Intent(
            StepKey("1kjmmb0rr001", step, 1).text, "1kjmmb0rr001", action, "", 1, IntentState.PLANNED, EPOCH
        )
        world = site.loop.world
        for shown in ((intent,), (replace(intent, state=IntentState.DONE),)):
            reader.planned(shown)
            book = replace(world.book, intents={**world.book.intents, intent.key: shown[0]})
            reader.turned(replace(world, book=book), Change(intents=shown))
        kinds.append(type(action))
        assert reader._pause_s() > 9, action
        assert not reader.look.is_set(), action
    assert len(kinds) == 3


def test_a_step_that_is_over_before_the_next_turn_has_slurm_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(4)
    now_s = 0.0
    monkeypatch.setattr(slurm_reader, "_now_s", lambda: now_s)
    reader = site.loop.reader
    assert site.loop.world is not None
    reader.turned(site.loop.world, Change())
    now_s = 500.0
    drain = Intent("1kjmmb0rr001/drain/n1/1", "1kjmmb0rr001", Drain("n1", "x"), "", 1, IntentState.PLANNED, EPOCH)
    reader.planned((drain,))
    assert not reader.look.is_set()
    reader.turned(site.loop.world, Change())
    assert (reader._pause_s(), reader.look.is_set()) == (BUSY_S, True)


def test_the_actors_bell_wakes_the_loop_and_reads_nothing() -> None:
    """It wakes the loop for a message, and for the provider's answer, as for a drain."""
    site = Site(2)
    controller = SimpleNamespace(bell=SimpleNamespace(drain=lambda: None), loop=site.loop)
    _rung(cast(Controller, controller))
    assert (site.loop.wake.is_set(), site.loop.reader.look.is_set()) == (True, False)


class Reads:
    """Counts readings of all of Slurm; the loop asks for those that it needs, and none comes unasked."""

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        plain = site.loop.observer.slurm.refresh

        def refresh() -> None:
            self.count += 1
            plain()

        monkeypatch.setattr(site.loop.observer.slurm, "refresh", refresh)
        monkeypatch.setattr(slurm_reader, "pause_s", lambda *_: 1000.0)


@pytest.fixture
def site() -> Site:
    return Site(6, spares=("n5", "n6"))


@pytest.fixture
def reads(site: Site, monkeypatch: pytest.MonkeyPatch) -> Reads:
    monkeypatch.setattr(loop_module, "TICK_S", 0.05)
    return Reads(site, monkeypatch)


def _drive(loop: ControlLoop, until: Callable[[], bool], then: Callable[[], None] = lambda: None) -> None:
    """The real loop, until it has read Slurm and turned; then an event, and on until the condition holds."""

    async def drill() -> None:
        running = asyncio.create_task(loop.run())
        try:
            async with asyncio.timeout(PATIENCE_S):
                while loop.turned_at_s is None or loop.reader._done == 0:
                    await asyncio.sleep(0.01)
                then()
                while not until() and not running.done():
                    await asyncio.sleep(0.01)
        finally:
            loop.stopping = True
            loop.wake.set()
            await running

    loop.wake = asyncio.Event()
    asyncio.run(drill())


def test_a_fault_is_decided_on_a_view_that_was_read_after_it(site: Site, reads: Reads) -> None:
    """Eight seconds ago the job was elsewhere, and the first spare was in service: an operator has drained it since."""
    job = site.slurm.submit(2, comment="holdfast")
    assert job.nodes

    def happens() -> None:
        site.slurm.drain("n5", "a fan (bob)")
        site.clock.advance(8)
        site.fault(job.nodes[0])
        site.loop.wake.set()

    _drive(site.loop, lambda: "PromoteSpare" in {i.kind for i in site.store.due_intents()}, happens)
    planned = {i.kind: i.action for i in site.store.due_intents()}
    assert planned["PromoteSpare"].target.node == "n6"
    assert reads.count == 2, "one at the start, one for the decision"
    assert site.loop.world is not None
    assert site.loop.world.view is not None
    assert site.loop.world.view.read_at == site.clock.now()


def test_a_turn_that_finds_nothing_to_do_reads_nothing(site: Site, reads: Reads) -> None:
    turned: list[float] = []
    site.loop.beat = lambda: turned.append(1)
    _drive(site.loop, lambda: len(turned) > 8, lambda: site.clock.advance(8))
    assert reads.count == 1


def test_what_a_turn_decides_without_a_report_is_decided_again_on_a_newer_view(site: Site, reads: Reads) -> None:
    """An operator ends a pause; meanwhile another one has drained the spare that the last view shows in service."""
    job = site.slurm.submit(2, comment="holdfast")
    site.operate("pause")
    site.fault(job.nodes[0])
    site.run(3)
    assert site.store.due_intents() == ()

    def happens() -> None:
        site.slurm.drain("n5", "a fan (bob)")
        site.clock.advance(8)
        site.operate("resume")
        site.loop.wake.set()

    before = reads.count
    _drive(site.loop, lambda: bool(site.store.due_intents()), happens)
    planned = {i.kind: i.action for i in site.store.due_intents()}
    assert planned["PromoteSpare"].target.node == "n6"
    assert reads.count == before + 2, "one at the start, one for the decision"


def test_a_warning_is_watched_and_reads_nothing(site: Site, reads: Reads) -> None:
    def happens() -> None:
        site.clock.advance(8)
        site.fault("n1", severity=Severity.WARNING, remedy=Remedy.NONE, failed=False)
        site.loop.wake.set()

    _drive(site.loop, lambda: bool(site.store.incidents(node="n1")), happens)
    assert site.incident("n1").state is IncidentState.WATCHING
    assert reads.count == 1


def test_slurm_that_does_not_answer_holds_up_no_decision(site: Site, reads: Reads) -> None:
    def happens() -> None:
        site.slurm.away = True
        site.clock.advance(8)
        site.fault("n1")
        site.loop.wake.set()

    _drive(site.loop, lambda: bool(site.store.due_intents()), happens)
    assert [i.kind for i in site.store.due_intents()] == ["Drain"]


def test_a_reading_under_way_is_new_enough(site: Site, reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large cluster one takes a second: a report that comes meanwhile waits for no other one."""
    begun, go_on = threading.Event(), threading.Event()
    plain = site.slurm.view

    def view() -> ClusterView:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        return plain()

    def happens() -> None:
        monkeypatch.setattr(site.slurm, "view", view)
        site.loop.reader.look.set()
        site.clock.advance(8)

    def decided() -> bool:
        if begun.is_set() and not go_on.is_set():
            site.fault("n1")
            site.loop.wake.set()
            go_on.set()
        return bool(site.store.due_intents())

    _drive(site.loop, decided, happens)
    assert [i.kind for i in site.store.due_intents()] == ["Drain"]
    assert reads.count == 2


def test_a_reading_that_hangs_holds_up_a_decision_for_seconds_alone(
    site: Site, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_reader, "PATIENCE_S", 0.2)

    async def hangs() -> None:
        await asyncio.Event().wait()

    def happens() -> None:
        monkeypatch.setattr(site.loop.reader, "_read_all", hangs)
        site.clock.advance(8)
        site.fault("n1")
        site.loop.wake.set()

    _drive(site.loop, lambda: bool(site.store.due_intents()), happens)
    assert [i.kind for i in site.store.due_intents()] == ["Drain"]
