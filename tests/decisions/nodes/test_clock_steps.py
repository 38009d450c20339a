"""The head node's wall clock is set by an hour in the middle of a recovery: everything proceeds as without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache

import pytest

from holdfast.controller.timing.clock_steps import ClockStep, as_if_right, as_recorded
from holdfast.decisions.common import slurm_view
from holdfast.decisions.nodes import hands_off
from holdfast.model.actions.action import Drain, IntentState, Launch, SendOrder
from holdfast.model.agents.report import Clear
from holdfast.model.book import Change, NodeRecord
from holdfast.model.event import EventKind
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.operators.maintenance import Window
from holdfast.model.operators.suppression import Suppression
from holdfast.ports import Operation
from holdfast_checks.result import Remedy, Severity
from support.simulated import EPOCH, Site
from support.simulated import site as site_module
from support.simulated.clock import SimClock
from support.simulated.site import NO_BUDGET, POLICY

_S = IncidentState
HOUR_S, DAY_S = 3600.0, 86_400.0
LATE_S = 45.0
"""After a step silence means nothing until every agent had the time to report."""
QUIET_S = 20.0
"""Where nothing has happened for this long, the time until something does is passed by five seconds at once."""


@dataclass(frozen=True)
class Way:
    """One recovery, the moment of the step, and how long it is watched."""

    name: str
    begin: Callable[[Site], object]
    until: Callable[[Site], bool]
    watch_s: float
    rounds: bool = False
    """Witnesses are asked in rounds for as long as it lasts: the actions are compared, not how often they are asked."""


def dies(site: Site) -> None:
    machine = site.machine("n1")
    machine.cut_off, machine.unreachable_by = True, set(site.slurm.nodes)


def job_and_fault(site: Site) -> None:
    site.slurm.submit(2, comment="holdfast", exclusive=True)
    site.run(2)
    site.fault("n1")


def no_capacity(site: Site) -> None:
    site.provider.capacity = False
    site.fault("n1")


def dead_without_capacity(site: Site) -> None:
    site.provider.capacity, site.provider.sees_power = False, True
    site.machine("n1").powered = False
    dies(site)


def silent_agent(site: Site) -> None:
    """Its witnesses reach it: it is never dead."""
    site.machine("n1").cut_off = True


def warned(site: Site) -> None:
    site.fault("n1", severity=Severity.WARNING, remedy=Remedy.NONE)


def state(wanted: IncidentState) -> Callable[[Site], bool]:
    return lambda site: bool(site.store.incidents(node="n1")) and site.incident("n1").state is wanted


def quiet(site: Site) -> bool:
    return state(_S.VALIDATING)(site) and site.incident("n1").validated_at is not None


def after(seconds: float) -> Callable[[Site], bool]:
    return lambda site: site.clock.elapsed_s >= 31 + seconds


WAYS = [
    Way("evidence", lambda s: s.fault("n1"), after(1), 900),
    Way("replacement boots", lambda s: s.fault("n1"), state(_S.REPAIRING), 900),
    Way("replacement is validated", lambda s: s.fault("n1"), state(_S.VALIDATING), 900),
    Way("quiet time", lambda s: s.fault("n1"), quiet, 900),
    Way("reboot", lambda s: s.fault("n1", remedy=Remedy.REBOOT), state(_S.REPAIRING), 900),
    Way("reset", lambda s: s.fault("n1", remedy=Remedy.RESET_GPU), after(1), 900),
    Way("no capacity", no_capacity, after(200), 1500),
    Way("silence", dies, after(20), 900),
    Way("suspicion", dies, after(31), 900),
    Way("dead", dead_without_capacity, state(_S.REPAIRING), 900),
    Way("cut off from the controller alone", silent_agent, after(40), 900, rounds=True),
    Way("job starts again", job_and_fault, after(6), 900),
    Way("job's own word is awaited", job_and_fault, after(60), 1500),  # word: a test's id
    Way("a warning is watched", warned, after(60), 4000),
    Way("an operator is awaited", lambda s: s.fault("n1", remedy=Remedy.HUMAN), after(30), 900),
    Way("all is well", lambda s: None, after(30), 900),
]


def story(way: Way, step_s: float) -> list[tuple[float, str]]:
    """What happened, and how many seconds after the start; without the step's own event, and holds, which Slurm may end first."""
    site = Site(4, policy=NO_BUDGET)
    way.begin(site)
    stepped = False
    told: list[tuple[float, str]] = []
    known = len(site.store.events())
    begun_s = news_s = site.clock.elapsed_s
    while site.clock.elapsed_s < begun_s + way.watch_s:
        if not stepped and way.until(site):
            site.clock.step(step_s)
            stepped, news_s = True, site.clock.elapsed_s
        quiet_s = site.clock.elapsed_s - news_s
        site.run(1, step_s=5 if stepped and quiet_s >= QUIET_S else 1)
        for event in site.store.events()[known:]:
            known, news_s = known + 1, site.clock.elapsed_s
            if event.kind is not EventKind.CLOCK_STEP and event.detail.get("kind") != "DropHold":
                told.append((site.clock.elapsed_s - begun_s, _words(site, event.kind.value, dict(event.detail))))
    assert stepped
    return told


@cache
def plain_story(way: Way) -> list[tuple[float, str]]:
    """Without a step."""
    return story(way, 0.0)


def _words(site: Site, kind: str, detail: dict[str, object]) -> str:
    return " ".join([kind, *(str(detail[k]) for k in ("kind", "from", "to", "attempt") if k in detail)])


@pytest.mark.sampled
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
def test_nothing_escalates_ends_or_waits_because_the_clock_was_set(way: Way, step_s: float) -> None:
    plain, stepped = plain_story(way), story(way, step_s)
    if way.rounds:
        assert {w for _, w in stepped} == {w for _, w in plain}
        return
    assert sorted(w for _, w in stepped) == sorted(w for _, w in plain)
    for (at_s, word), (other_s, _) in zip(sorted(plain, key=_by_word), sorted(stepped, key=_by_word), strict=True):
        assert abs(other_s - at_s) <= LATE_S, word


def _by_word(told: tuple[float, str]) -> tuple[str, float]:
    return told[1], told[0]


def test_a_step_is_on_record_and_told_once() -> None:
    site = Site(2)
    site.clock.step(HOUR_S)
    site.run(60)
    site.clock.step(-HOUR_S)
    site.run(60)
    steps = site.store.events(kinds=(EventKind.CLOCK_STEP,))
    assert [event.detail["seconds"] for event in steps] == [HOUR_S, -HOUR_S]
    assert "set ahead by 3600 s" in steps[0].text


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
def test_a_controller_that_starts_after_a_step_knows_of_it(step_s: float) -> None:
    site = Site(4, policy=NO_BUDGET)
    no_capacity(site)
    site.run(60)
    before = site.incident("n1")
    site.clock.step(step_s)
    site.run(5)
    site.start_controller()
    site.run(120)
    assert site.incident("n1").state is _S.REPAIRING
    assert site.incident("n1").repair_attempt == before.repair_attempt
    assert site.incident("n1").state_since == before.state_since, "the store keeps what was recorded"


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
def test_a_maintenance_window_ends_at_the_wall_time_that_its_operator_named(step_s: float) -> None:
    site = Site(2)
    now = site.clock.now()
    window = Window("w1", ("n1",), now, now + timedelta(hours=2), "ops", "psu")
    site.store.operate(Operation("maintain", "ops", "n1", "psu", window=window), now)
    site.run(10)
    site.clock.step(step_s)
    site.run(10)
    assert [w.until for w in site.book.windows] == [window.until]
    assert site.loop.world is not None
    assert hands_off.on(site.loop.world, "n1") is not None
    site.run(2 * HOUR_S - step_s, step_s=30)
    assert hands_off.on(site.loop.world, "n1") is None


def test_a_job_that_is_requeued_while_the_clock_is_set_back_runs_again_once() -> None:
    """Its new submit time lies before the old one: to Holdfast it is gone, and Slurm itself starts it."""
    site = Site(4, policy=NO_BUDGET)
    job_and_fault(site)
    site.run(1)
    site.clock.step(-HOUR_S)
    site.run(300)
    (job,) = site.slurm.jobs.values()
    assert (job.state, job.restarts, site.slurm.requeued.total()) == ("RUNNING", 1, 1)


def steps_count(site: Site, kind: type) -> int:
    return sum(1 for i in site.store.intents() if isinstance(i.action, kind) and i.state is IntentState.DONE)


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S, 0.0])
def test_the_brake_counts_the_drains_of_the_ten_minutes_before_a_step(step_s: float) -> None:
    site = Site(16)
    for number in (1, 2, 3):
        site.fault(f"n{number}")
        site.run(1)
    site.clock.step(step_s)
    site.run(1)
    site.fault("n4")
    site.run(5)
    assert (set(site.book.brakes), steps_count(site, Drain)) == ({"drains"}, 3)


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S, 0.0])
@pytest.mark.parametrize("restart", [False, True])
def test_the_brake_counts_nodes_that_were_repaired_before_a_step(step_s: float, restart: bool) -> None:
    site = Site(16, policy=NO_BUDGET)
    for number in (1, 2, 3):
        site.fault(f"n{number}")
    site.run(250)
    assert {i.state for i in site.store.incidents()} == {_S.CLOSED}
    site.clock.step(step_s)
    site.run(1)
    if restart:
        site.start_controller()
        site.run(1)
    site.fault("n4")
    site.run(5)
    assert (set(site.book.brakes), steps_count(site, Drain)) == ({"drains"}, 3)


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S, 0.0])
def test_a_brake_that_was_released_before_a_step_stays_so(step_s: float) -> None:
    site = Site(16)
    for number in (1, 2, 3, 4):
        site.fault(f"n{number}")
        site.run(1)
    site.operate("release_brake", "drains")
    site.run(5)
    site.clock.step(step_s)
    site.run(60)
    assert steps_count(site, Drain) == 4
    assert not any(brake.released_at is None for brake in site.book.brakes.values())


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S - 0.5, 0.0])
def test_a_budget_counts_what_was_spent_in_the_hour_before_a_step(step_s: float) -> None:
    brakes = replace(POLICY.brake, drains_10min=1000, drains_60min=1000)
    site = Site(40, policy=replace(POLICY, brake=brakes))
    for number in range(1, 5):
        site.fault(f"n{number}")
        site.run(1)
    site.run(60)
    assert steps_count(site, Launch) == 4
    site.clock.step(step_s)
    site.run(30)
    site.fault("n9")
    site.run(1200, step_s=5)
    assert steps_count(site, Launch) == 4, "an hour's budget is spent"
    site.run(3000, step_s=10)
    assert steps_count(site, Launch) == 5, "an hour later there is another"


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S, 0.0])
def test_a_job_that_advances_does_not_hang_because_the_clock_was_set(step_s: float) -> None:
    site = Site(4, policy=POLICY)
    job = site.slurm.submit(3, comment="holdfast", exclusive=True)
    site.run(2)

    def advances(first: int, count: int) -> None:
        for step in range(first, first + count):
            machine = site.machine(job.nodes[0])
            detail = {"phase": "step", "step_ms": 900}
            site.agents.state(machine, "progress", job.job_id, job.restarts, step=step, detail=detail)
            site.run(2)

    advances(0, 30)
    site.clock.step(step_s)
    advances(30, 60)
    assert not site.store.incidents()
    assert (job.state, job.restarts) == ("RUNNING", 0)
    silent_from_s = site.clock.elapsed_s
    while not site.store.incidents() and site.clock.elapsed_s < silent_from_s + 7200:
        site.run(10)
    floor_s = site.policy.hangs.floor_s
    hung_after_s = site.clock.elapsed_s - silent_from_s
    assert hung_after_s >= floor_s
    if step_s <= 0:  # set ahead, the pause between two reports seems an hour long, and patience grows with the longest
        assert hung_after_s <= floor_s + 120, "one that stops does, as late as ever"


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
def test_slurmctld_that_is_back_is_given_its_time_whatever_the_clock_says(step_s: float) -> None:
    site = Site(3)
    site.slurm.away = True
    site.run(60)
    site.slurm.away = False
    site.run(5)
    site.clock.step(step_s)
    site.run(5)
    assert site.loop.world is not None
    assert not slurm_view.slurm_settled(site.loop.world)
    site.run(float(slurm_view.SLURMD_TIMEOUT_S), step_s=5)
    assert slurm_view.slurm_settled(site.loop.world)


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
def test_a_drain_is_known_to_be_forgotten_whatever_the_clock_says(step_s: float) -> None:
    site = Site(3, policy=NO_BUDGET)
    site.fault("n1", remedy=Remedy.HUMAN)
    site.run(60)
    site.clock.step(step_s)
    site.run(60)
    site.slurm.start_cold()
    site.run(10)
    assert site.slurm.nodes["n1"].drain
    assert site.incident("n1").state is _S.AWAITING_HUMAN
    site.slurm.operator_resumes("n1")
    site.run(10)
    assert site.incident("n1").state is _S.CLOSED


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S, 0.0])
def test_what_the_hardware_clears_after_a_step_is_cleared(step_s: float) -> None:
    site = Site(3, policy=NO_BUDGET)
    site.fault("n1", severity=Severity.WARNING, remedy=Remedy.NONE, sticky=True)
    site.run(60)
    site.clock.step(step_s)
    site.run(10)
    (finding,) = site.book.findings.values()
    clear = Clear(finding.check, finding.component, site.clock.now())
    site.agents.report(site.machine("n1"), clears=(clear,))
    site.run(5)
    assert site.incident("n1").state is _S.CLOSED


def test_several_steps_each_count_for_what_was_recorded_before_them() -> None:
    """Back an hour, back another, a minute ahead: 12:00 by the first clock is 10:01 by the last."""
    noon = EPOCH
    first = ClockStep(noon - timedelta(minutes=58), -3600.0, frozenset({noon}))
    second = ClockStep(noon - timedelta(minutes=116), -3600.0, frozenset({noon, noon - timedelta(minutes=57)}))
    third = ClockStep(noon - timedelta(minutes=113), 60.0, second.known | {noon - timedelta(minutes=115)})
    now = noon - timedelta(minutes=110)
    minutes = {0: -119, -57: -116, -115: -114, -112: -112}
    for recorded, counts in minutes.items():
        at = noon + timedelta(minutes=recorded)
        assert as_if_right(at, (first, second, third), now) == noon + timedelta(minutes=counts), recorded


def test_what_a_process_remembers_of_before_a_step_is_read_as_it_was_written() -> None:
    """A node fell silent before the clock was set back, and its silence was recorded afterwards: it was written in each turn (soak)."""
    noon = EPOCH
    steps = (ClockStep(noon - timedelta(minutes=1), -60.0), ClockStep(noon - timedelta(minutes=51), -3600.0))
    now = noon - timedelta(minutes=40)
    for minutes in (120, 90, 62, 55, 51, 45, 40):
        heard = noon - timedelta(minutes=minutes)
        record = NodeRecord("n1", unreached_since=heard)
        (written,) = as_recorded(Change(nodes=(record,)), {}, steps, now).nodes
        assert written.unreached_since is not None
        assert as_if_right(written.unreached_since, steps, now) == heard, minutes


def test_a_clock_that_is_set_again_and_again_repeats_no_question() -> None:
    site = Site(6)
    for step_s in (-3600.5, -3600.5, 60.5):
        site.run(60)
        site.clock.step(step_s)
    site.run(2)
    site.machine("n5").cut_off = True
    site.run(120, step_s=5)
    probes = [i for i in site.store.intents() if isinstance(i.action, SendOrder)]
    assert len(probes) < 40


def test_a_step_back_while_no_controller_runs_repeats_no_question() -> None:
    """A time since then is not taken for one before a known step."""
    site = Site(6)
    site.clock.step(-3600.5)
    site.run(2)
    site.clock.step(-3600.5)
    site.start_controller()
    site.machine("n4").powered = False
    site.run(120, step_s=5)
    probes = [i for i in site.store.intents() if isinstance(i.action, SendOrder)]
    assert 0 < len(probes) < 40
    steps = site.store.events(kinds=(EventKind.CLOCK_STEP,))
    assert [event.detail["seconds"] for event in steps] == pytest.approx([-3600.5, -3600.5], abs=10)


@pytest.mark.parametrize("away_s", [0, 300])
def test_after_a_step_back_while_no_controller_runs_nothing_waits_for_an_hour(away_s: int) -> None:
    site = Site(4, policy=NO_BUDGET)
    no_capacity(site)
    site.run(60)
    site.clock.advance(away_s)
    site.clock.step(-HOUR_S)
    site.start_controller()
    site.run(31)
    site.provider.capacity = True
    site.run(900)
    assert site.incident("n1").state is _S.CLOSED, site.story()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_reservation_that_had_begun_before_the_clock_was_set_back_still_means_hands_off(restarted: bool) -> None:
    """By the clock as set, its start is in the future: its node's machine was terminated during the vendor's work (soak, seed 32)."""
    site = Site(4, policy=NO_BUDGET)
    site.fault("n1")
    site.run(1)
    while site.incident("n1").state is not _S.VALIDATING:
        site.run(1)
    site.slurm.operator_reserves("vendor", "n1")
    site.run(5)
    site.clock.step(-HOUR_S)
    if restarted:
        site.start_controller()
    site.run(1800, step_s=5)
    assert "MAINT reservation vendor" in site.incident("n1").note
    assert site.provider.terminated == {}
    site.slurm.reservations.clear()
    site.run(1800, step_s=5)
    assert site.incident("n1").state is _S.CLOSED, site.story()


def test_a_reservation_that_is_to_begin_begins_when_it_says() -> None:
    site = Site(2)
    site.slurm.operator_reserves("vendor", "n1", hours=4)
    site.run(2)
    site.clock.step(-HOUR_S)
    site.run(2)
    begin = site.clock.now() + timedelta(hours=2)
    site.slurm.reservations["next"] = replace(site.slurm.reservations["vendor"], name="next", start_time=begin)
    site.slurm.reservations.pop("vendor")
    site.run(10)
    assert site.loop.world is not None
    assert hands_off.on(site.loop.world, "n1") is None
    site.run(2 * HOUR_S, step_s=30)
    assert hands_off.on(site.loop.world, "n1") is not None


AHEAD = {"+1 day": DAY_S, "+10 years": 3650 * DAY_S, "-1 hour": -HOUR_S}


def boots(ahead_s: float, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The head node has just started with a wrong clock, which is not corrected yet."""
    clock = SimClock()
    clock.wall_ahead_s = ahead_s
    monkeypatch.setattr(site_module, "SimClock", lambda: clock)
    bold = replace(NO_BUDGET, brake=replace(POLICY.brake, stopped_gpu_share_60min=1.0))
    return Site(6, spares=("n6",), policy=bold, warm=False)


def _one_more_of_each(site: Site) -> None:
    """A fault under a job, then a node that dies: both are repaired."""
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    site.run(5)
    node = job.nodes[0]
    site.fault(node)
    site.run(900, step_s=3)
    assert (job.state, job.restarts) == ("RUNNING", 1), site.story()
    assert site.incident(node).state is _S.CLOSED, site.story()
    site.machine("n3").powered = False
    site.run(1500, step_s=3)
    assert site.incident("n3").state is _S.CLOSED, site.story()
    site.slurm.finish(job, "COMPLETED")
    site.run(60, step_s=3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("when", "restarted"), [("before the first event", False), ("during a recovery", True), ("after events", False)]
)
@pytest.mark.parametrize("ahead", AHEAD)
def test_a_clock_that_is_corrected_after_the_start_leaves_nothing_waiting_for_the_old_future(
    ahead: str, when: str, restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = boots(AHEAD[ahead], monkeypatch)
    if when == "before the first event":
        site.run(2)
    elif when == "during a recovery":
        site.run(35)
        job_and_fault(site)
        site.run(10)
    else:
        site.run(35)
        _one_more_of_each(site)
    site.clock.step(-AHEAD[ahead])
    if restarted:
        site.run(5)
        site.start_controller()
    site.run(900, step_s=3)
    for job in site.slurm.jobs.values():
        site.slurm.finish(job, "COMPLETED")
    site.run(60, step_s=3)
    _one_more_of_each(site)
    assert list(site.slurm.reservations) == [POLICY.spare_reservation]
    assert (site.store.incidents(only_open=True), site.store.due_intents()) == ((), ())
    assert not site.book.brakes
    site.read_background()
    shown = site.loop.observer.background.newest
    assert all(o.back_at is not None and o.out_at <= site.clock.now() for o in shown.outages)


@pytest.mark.parametrize("ahead", [a for a in AHEAD if AHEAD[a] > 0])
def test_a_suppression_that_was_ordered_while_the_clock_was_ahead_ends_in_time(
    ahead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = boots(AHEAD[ahead], monkeypatch)
    site.run(35)
    now = site.clock.now()
    wanted = Suppression("s1", now + timedelta(hours=1), "ops", "fan on order", now, node="n1")
    site.store.operate(Operation("suppress", "ops", "n1", "fan on order", suppression=wanted), now)
    site.run(60)
    site.clock.step(-AHEAD[ahead])
    site.run(60)
    site.fault("n1", sticky=True)
    site.run(5)
    assert site.store.incidents(node="n1") == (), "it still holds"
    site.start_controller()
    site.run(HOUR_S, step_s=10)
    assert site.store.incidents(node="n1"), "it is over after its hour"


def test_faults_of_a_time_that_is_yet_to_come_make_no_lemon_of_that_time(monkeypatch: pytest.MonkeyPatch) -> None:
    site = boots(AHEAD["+10 years"], monkeypatch)
    site.run(35)
    for _ in range(POLICY.history.short_faults):
        site.fault("n1", remedy=Remedy.HUMAN)
        site.run(10)
        site.slurm.operator_resumes("n1")
        site.run(10)
    site.clock.step(-AHEAD["+10 years"])
    site.run(60)
    site.read_background()
    lemon = site.loop.observer.background.newest.lemons["n1"]
    assert lemon.until is not None
    assert timedelta(0) < lemon.until - site.clock.now() <= timedelta(seconds=POLICY.history.lemon_s)
