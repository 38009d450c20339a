"""Only their own heartbeats show when the nodes of a cut stopped answering, if anything does: none is judged alone because of that.

The shipped defaults, in ``act``; a provider that shows no power where nothing else is said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.controller.observing.head_reach import HeadReached
from holdfast.controller.timing import pace
from holdfast.decisions.death import agentless, late, unreached
from holdfast.model.book import NodeRecord
from holdfast.model.machine import Instance
from support.simulated import Site, agents
from support.simulated.network import back, cut
from support.simulated.provider import FULL

BLIND = replace(FULL, status=False)
GRACE_S = 900


@pytest.fixture(autouse=True)
def _shipped_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timings that the controller gives to a fleet of this size."""
    monkeypatch.setattr(agents, "HEARTBEAT_S", pace.interval_s(1000))


def fenced_jobs(site: Site, jobs: int = 4) -> None:
    """Each on a separate node, from n1 on."""
    for _ in range(jobs):
        site.registers(site.slurm.submit(1, comment="holdfast", exclusive=True))
    site.run(2)


def done_to(site: Site, name: str) -> list[str]:
    """What was done to the node and to its machines."""
    machines = {m.instance_id for m in site.machines.values() if m.node == name}
    provider = site.provider
    return [
        *(verb for verb, target in site.slurm.calls if target == name and verb in ("drain", "set_down", "reboot")),
        *("ended" for number in provider.terminated if number in machines),
        *("cycled" for number in provider.cycled.values() if number in machines),
        *("launched" for number in provider.tokens.values() if number in machines),
    ]


def restart(site: Site, down_s: int) -> None:
    """The controller is away for this long, and is ready after three seconds as in the practice."""
    for _ in range(down_s):
        site.clock.advance(1)
        site.world_moves()
    site.start_controller()
    site.loop.observer.cold_start_s = 3


@pytest.mark.parametrize("before_s", [35, 58])
def test_a_companion_with_a_heartbeat_of_a_minute_is_one_however_long_before_it_was_heard(before_s: int) -> None:
    site = Site(8, can=BLIND)
    site.machine("n4").heartbeat_s = 60.0
    fenced_jobs(site)
    site.run(61)
    while not site.machine("n4").next_beat_s - site.clock.elapsed_s <= 60 - before_s:
        site.run(1)
    cut(site, "n3", "n4")
    site.run(120)
    assert done_to(site, "n3") == []
    back(site, "n4")
    site.run(GRACE_S, step_s=10)
    assert done_to(site, "n3") == []


def shown_as_running(site: Site, *numbers: str) -> None:
    """The provider shows only that these machines run."""
    plain = site.provider.instance

    def shown(instance_id: str) -> Instance:
        found = plain(instance_id)
        return replace(found, state="running", healthy=None) if instance_id in numbers else found

    site.provider.instance = shown  # type: ignore[method-assign]


def test_beside_a_machine_that_lost_its_power_no_other_is_touched_whose_power_is_not_off() -> None:
    """The switch has its power from the same PDU."""
    site = Site(8, can=FULL)
    shown_as_running(site, "i-0003")
    site.machine("n4").powered = False
    cut(site, "n3")
    site.run(60)
    assert site.incident("n4").dead
    site.run(GRACE_S + 600, step_s=10)
    assert [d for d in done_to(site, "n3") if d not in ("drain", "set_down")] == []
    assert "ended" in done_to(site, "n4"), "its own power is off"


def test_a_machine_that_lost_its_power_alone_is_replaced_and_no_one_is_told_of_a_group() -> None:
    site = Site(8, can=FULL)
    site.machine("n4").powered = False
    site.run(120)
    assert "launched" in done_to(site, "n4")
    site.run(300, step_s=5)
    assert [s for s in site.notices.sent if "not report" in s] == []


def test_a_node_that_fell_silent_while_no_controller_ran_keeps_its_machine() -> None:
    """The other node of the cut is back before a controller is: nothing shows that there was a cut."""
    site = Site(8, can=BLIND)
    fenced_jobs(site)
    cut(site, "n3", "n4")
    for _ in range(20):
        site.clock.advance(1)
        site.world_moves()
    back(site, "n4")
    restart(site, 20)
    site.run(GRACE_S + 300, step_s=5)
    assert [d for d in done_to(site, "n3") if d not in ("drain", "set_down")] == []
    told = [body for subject, body in site.notices.bodies if subject.startswith("1 node")]
    assert told, site.notices.sent
    assert "before the controller started" in told[0]


def test_a_death_while_the_controller_restarts_is_found_beside_a_node_that_has_long_been_dead() -> None:
    """The lease shows until when the previous controller worked, also on a quiet site."""
    site = Site(8, can=BLIND)
    site.slurm.operator_drains("n8")
    site.machine("n8").powered = False
    site.run(900, step_s=10)
    fenced_jobs(site)
    site.machine("n3").powered = False
    restart(site, 2)
    site.run(60)
    assert done_to(site, "n3") == ["set_down"], site.story()


def test_two_moments_that_may_be_one() -> None:
    """A node's last heartbeat was received just before it stopped, so one that reported after that had not stopped with it."""
    site = Site(2)
    at = site.clock.now()
    slow = NodeRecord("n1", unreached_since=at, unreached_by=at + timedelta(seconds=180))
    for later_s, one in ((0, True), (150, True), (200, False)):
        assert unreached.may_be_one(slow, at + timedelta(seconds=later_s), None) is one
    assert not unreached.may_be_one(slow, at - timedelta(seconds=40), None)


class TestWithoutAgent:
    """A pilot: some nodes of the switch have no agent. The head node's connects show whether they answer."""

    @staticmethod
    def site(*names: str, nodes: int = 8) -> Site:
        site = Site(nodes, can=BLIND, warm=False)
        for name in names:
            site.machine(name).agent_up = False
        site.warm_up()
        fenced_jobs(site)
        return site

    @pytest.mark.sampled
    @pytest.mark.parametrize("back_s", [20, 400])
    @pytest.mark.parametrize("quiet_s", [1, 250])
    def test_one_that_is_cut_off_with_it_is_a_companion(self, quiet_s: int, back_s: int) -> None:
        site = self.site("n5", "n6")
        site.run(quiet_s, step_s=1)
        cut(site, "n3", "n5")
        site.run(back_s)
        assert done_to(site, "n3") == []
        back(site, "n5")
        site.run(GRACE_S + 300, step_s=5)
        assert done_to(site, "n3") == []
        assert done_to(site, "n5") == []
        back(site)
        site.run(120, step_s=2)
        assert site.store.incidents(only_open=True) == ()

    def test_those_that_answer_delay_no_death(self) -> None:
        site = self.site("n5", "n6", "n7")
        before_s = site.clock.elapsed_s
        site.machine("n3").powered = False
        while not done_to(site, "n3"):
            site.run(1)
        assert site.clock.elapsed_s - before_s <= 17
        assert done_to(site, "n3") == ["set_down"]

    def test_those_that_never_answered_count_for_nothing(self) -> None:
        site = Site(8, can=BLIND, warm=False)
        for name in ("n5", "n6"):
            site.machine(name).powered = False
        site.run(31)
        fenced_jobs(site)
        site.machine("n3").powered = False
        site.run(30)
        assert done_to(site, "n3") == ["set_down"]

    def test_one_that_was_switched_off_hours_ago_counts_for_nothing(self) -> None:
        site = self.site("n5")
        site.machine("n5").powered = False
        site.run(3600, step_s=10)
        assert [s for s in site.notices.sent if "not report" in s] == []
        site.run(30)
        site.machine("n3").powered = False
        site.run(30)
        assert done_to(site, "n3") == ["set_down"]

    def test_each_is_asked_every_five_minutes_and_few_at_a_time(self) -> None:
        site = self.site(*(f"n{n}" for n in range(9, 601)), nodes=600)
        asked: list[int] = []
        reach = site.loop.observer.head.connect

        def counted(targets: Mapping[str, tuple[str, int]], timeout_s: float) -> HeadReached:
            asked.append(len(targets))
            return reach(targets, timeout_s)

        site.loop.observer.head.connect = counted
        written = site.store.load_book(site.clock.now()).nodes
        site.run(300, step_s=5)
        assert max(asked) <= agentless.MOST
        assert sum(asked) == 592
        assert site.store.load_book(site.clock.now()).nodes == written, "nothing is written of what answers"


@pytest.mark.parametrize("agent", [True, False])
def test_a_companion_that_slurm_reboots_and_that_lives_on_counts(agent: bool) -> None:
    """Its RebootProgram had no effect: Slurm shows REBOOT_ISSUED, and the node answers until the cut."""
    site = Site(8, can=BLIND)
    site.machine("n4").agent_up = agent
    site.slurm.resume_timeout_s = 3600.0
    fenced_jobs(site, 3)
    site.run(400)
    site.slurm.on_reboot = lambda _: None
    site.slurm.operator_reboots("n4")
    site.run(400)
    cut(site, "n3", "n4")
    site.run(GRACE_S + 600, step_s=5)
    assert done_to(site, "n3") == [], site.story()


def test_a_companion_that_slurm_powers_up_and_that_reports_counts() -> None:
    site = Site(8, can=BLIND)
    fenced_jobs(site, 3)
    site.run(30)
    site.slurm.nodes["n5"].power = "POWERING_UP"
    site.run(5)
    cut(site, "n3", "n5")
    site.run(GRACE_S + 600, step_s=5)
    assert done_to(site, "n3") == [], site.story()


def test_a_claimed_interval_of_an_hour_makes_no_companion_of_those_that_die_later() -> None:
    """Root on one node claims it, and cuts the node off once: nodes that died in the next three hours were left to an operator."""
    site = Site(16, can=BLIND)
    fenced_jobs(site, 1)
    name = "n1"
    site.machine("n12").claims_interval_s = 3600.0
    site.run(30)
    cut(site, "n12")
    site.run(700)
    site.machine(name).powered = False
    site.run(120)
    assert "set_down" in done_to(site, name), site.story()


class TestFlaps:
    """Companions that report again before they are silent: the head node asks the kernel of each whose heartbeat is overdue."""

    @pytest.mark.parametrize("phase_s", [0, 2])
    @pytest.mark.parametrize("back_s", [8, 10])
    def test_one_that_reports_again_within_ten_seconds_is_a_companion(self, back_s: int, phase_s: int) -> None:
        site = Site(8, can=BLIND)
        fenced_jobs(site)
        site.run(60 + phase_s)
        cut(site, "n3", "n4")
        site.run(back_s)
        back(site, "n4")
        site.machine("n3").unreachable_by.add("n4")
        site.run(120)
        assert done_to(site, "n3") == []

    @pytest.mark.parametrize("first_s", [9, 60])
    def test_the_second_cut_of_a_flapping_switch_is_one_however_short_it_is_for_the_other(self, first_s: int) -> None:
        site = Site(8, can=BLIND)
        fenced_jobs(site)
        cut(site, "n3", "n4")
        site.run(first_s)
        back(site)
        site.run(180)
        cut(site, "n3", "n4")
        site.run(1)
        back(site, "n4")
        site.machine("n3").unreachable_by.add("n4")
        site.run(120)
        assert done_to(site, "n3") == []
        back(site)
        site.run(1200, step_s=2)
        site.machine("n3").powered = False
        site.run(30)
        assert done_to(site, "n3") == ["set_down"], "long after the cuts a death is one"

    def test_an_agent_that_restarts_is_no_companion(self) -> None:
        site = Site(8, can=BLIND)
        fenced_jobs(site)
        site.machine("n3").powered = False
        site.machine("n4").agent_up = False
        site.run(9)
        site.machine("n4").agent_up = True
        site.run(21)
        assert done_to(site, "n3") == ["set_down"]

    def test_an_agent_that_is_late_all_the_time_is_no_companion(self) -> None:
        site = Site(8, can=BLIND)
        fenced_jobs(site)
        for _ in range(5):
            site.machine("n4").next_beat_s += 4
            site.run(20)
        site.machine("n4").next_beat_s += 4
        site.machine("n3").powered = False
        site.run(30)
        assert done_to(site, "n3") == ["set_down"]

    def test_an_agent_is_asked_for_once_in_each_gap_and_nothing_is_written_of_it(self) -> None:
        site = Site(8, can=BLIND)
        asked: list[str] = []
        reach = site.loop.observer.head.connect

        def noted(targets: Mapping[str, tuple[str, int]], timeout_s: float) -> HeadReached:
            asked.extend(targets)
            return reach(targets, timeout_s)

        site.loop.observer.head.connect = noted
        written = site.store.load_book(site.clock.now()).nodes
        for _ in range(2):
            site.machine("n4").next_beat_s += 4
            site.run(20)
        assert asked == ["n4", "n4"]
        assert site.store.load_book(site.clock.now()).nodes == written

    def test_few_are_asked_at_a_time_where_the_controller_was_held_up(self) -> None:
        site = Site(100, can=BLIND)
        site.run(8)
        world = site.loop.world
        assert world is not None
        held_up = replace(world, now=world.now + timedelta(seconds=9))
        assert late.to_ask(world, (), {}) == ()
        assert len(late.to_ask(held_up, (), {})) == late.MOST
