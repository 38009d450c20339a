"""A cut whose nodes are drained, restarted or silent in different ways: the silence of each is evidence that the others live.

The shipped defaults, in ``act``; a provider that shows no power where nothing else is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from holdfast.controller.timing import pace
from holdfast.model.incidents.incident import IncidentState
from holdfast_checks.result import Remedy
from support.simulated import Site, agents
from support.simulated.network import back, cut
from support.simulated.provider import FULL
from support.simulated.slurm import PowerSaving

BLIND = replace(FULL, status=False)
GRACE_S = 900


@pytest.fixture(autouse=True)
def _shipped_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timings that the controller gives to a fleet of this size."""
    monkeypatch.setattr(agents, "HEARTBEAT_S", pace.interval_s(1000))


def fenced_jobs(site: Site, jobs: int = 4) -> None:
    """Each on a separate node, from n1 on; they opted in, and their checkpoint library refuses an older run's writes."""
    for _ in range(jobs):
        job = site.slurm.submit(1, comment="holdfast", exclusive=True)
        detail = {"fenced": True}
        site.agents.state(site.machine(job.nodes[0]), "checkpoint.register", job.job_id, 0, path="/ckpt", detail=detail)
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


def set_down(site: Site, name: str) -> None:
    node = site.slurm.nodes[name]
    node.down, node.reason, node.user, node.time = True, "psu", "ops", site.clock.now()
    site.slurm._kill_on(name)


HANDS: dict[str, Callable[[Site], object]] = {
    "drained": lambda site: site.slurm.operator_drains("n4"),
    "DOWN": lambda site: set_down(site, "n4"),
    "MAINT": lambda site: site.slurm.operator_reserves("vendor", "n4", hours=4),
    "out of slurm.conf": lambda site: site.slurm.take_out("n4"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("after_s", [11, 60, 400])
@pytest.mark.parametrize("hands", HANDS)
def test_a_companion_that_comes_into_an_operators_hands_is_still_one(hands: str, after_s: int) -> None:
    site = Site(16, can=BLIND)
    fenced_jobs(site)
    cut(site, "n3", "n4")
    site.run(after_s)
    HANDS[hands](site)
    site.run(300, step_s=2)
    assert done_to(site, "n3") == []
    site.run(GRACE_S + 600, step_s=10)
    assert done_to(site, "n3") == []
    assert site.incident("n3").state is IncidentState.SUSPECTED
    assert [s for s in site.notices.sent if "10.0.0.0/24" in s], site.notices.sent


@pytest.mark.parametrize("hands", ["drained", "DOWN", "MAINT"])
def test_a_companion_that_was_in_an_operators_hands_before_is_one(hands: str) -> None:
    site = Site(16, can=BLIND)
    fenced_jobs(site, jobs=3)
    HANDS[hands](site)
    site.run(60)
    cut(site, "n3", "n4")
    site.run(300, step_s=2)
    assert done_to(site, "n3") == []
    site.run(GRACE_S + 300, step_s=10)
    assert done_to(site, "n3") == []
    assert done_to(site, "n4") == []
    assert site.store.incidents(node="n4", only_open=True) == (), "nothing is judged of it"
    assert [s for s in site.notices.sent if s.startswith("2 nodes")], site.notices.sent


def test_a_companion_that_waits_for_a_reboot_is_one() -> None:
    """Slurm was asked to reboot it once its job has ended: until then its silence counts like any other node's."""
    site = Site(16, can=BLIND)
    fenced_jobs(site)
    site.slurm.nodes["n4"].reboot = "REBOOT_REQUESTED"
    site.run(300, step_s=5)
    cut(site, "n3", "n4")
    site.run(200)
    assert done_to(site, "n3") == []
    site.run(GRACE_S + 600, step_s=10)
    assert done_to(site, "n3") == []


def test_a_companion_that_holdfast_rebooted_before_and_that_reports_again_is_one() -> None:
    site = Site(16, can=BLIND)
    fenced_jobs(site, jobs=3)
    site.fault("n4", remedy=Remedy.REBOOT)
    for _ in range(400):
        site.run(1)
        if site.incident("n4").state is IncidentState.VALIDATING:
            break
    assert site.incident("n4").state is IncidentState.VALIDATING
    cut(site, "n3", "n4")
    site.run(200)
    assert done_to(site, "n3") == [], site.story()


def test_nodes_in_an_operators_hands_alone_page_nobody() -> None:
    site = Site(16, can=BLIND)
    site.slurm.operator_reserves("vendor", "n4", "n5", "n6", hours=4)
    site.run(10)
    cut(site, "n4", "n5", "n6")
    site.run(1200, step_s=5)
    assert site.notices.sent == []


def test_nodes_that_slurm_itself_put_to_sleep_are_no_companions() -> None:
    """A node that power saving turned off is silent on purpose; one that dies meanwhile is found dead."""
    site = Site(16, can=BLIND)
    fenced_jobs(site)
    site.slurm.saving = PowerSaving(suspend_time_s=1e9, suspend_timeout_s=5)
    for name in ("n8", "n9", "n10", "n11", "n12"):
        site.slurm.nodes[name].power = "POWER_DOWN"
    site.run(3)
    for name in ("n3", "n8", "n9", "n10", "n11", "n12"):
        site.machine(name).powered = False
    site.run(30)
    assert done_to(site, "n3") == ["set_down"]


def test_a_companion_that_power_saving_puts_to_sleep_after_the_cut_is_still_one() -> None:
    site = Site(16, can=BLIND)
    fenced_jobs(site)
    cut(site, "n3", "n8")
    site.run(60)
    site.slurm.saving = PowerSaving(suspend_time_s=1e9, suspend_timeout_s=5)
    site.slurm.nodes["n8"].power = "POWERED_DOWN"
    site.run(GRACE_S + 300, step_s=5)
    assert done_to(site, "n3") == []


@pytest.mark.parametrize("fault_after_s", [-30, 5])
def test_a_companion_with_a_fault_of_its_own_that_reports_again_is_still_one(fault_after_s: int) -> None:
    site = Site(16, can=BLIND)
    fenced_jobs(site, jobs=3)
    if fault_after_s < 0:
        site.fault("n4")
        site.run(-fault_after_s)
    cut(site, "n3", "n4")
    if fault_after_s > 0:
        site.run(fault_after_s)
        site.fault("n4")
    site.run(100, step_s=2)
    back(site, "n4")
    site.run(GRACE_S + 600, step_s=5)
    assert done_to(site, "n3") == []


def test_a_companion_whose_kernel_alone_answers_again_is_still_one() -> None:
    """The cut is over for it, and its agent is not back."""
    site = Site(16, can=BLIND)
    fenced_jobs(site)
    cut(site, "n3", "n4")
    site.run(60)
    site.machine("n4").agent_up = False
    back(site, "n4")
    site.run(GRACE_S + 600, step_s=5)
    assert done_to(site, "n3") == []
    assert done_to(site, "n4") == []


def test_a_companion_that_falls_silent_a_second_time_is_still_one() -> None:
    site = Site(16, can=BLIND)
    fenced_jobs(site)
    cut(site, "n3", "n4")
    site.run(60)
    back(site, "n4")
    site.run(1200, step_s=5)
    site.machine("n4").powered = False
    site.run(60)
    assert done_to(site, "n4") == ["set_down"], "a death alone"
    assert done_to(site, "n3") == []


def test_a_companion_whose_power_goes_off_after_the_cut_began_is_still_one() -> None:
    site = Site(16, can=FULL)
    fenced_jobs(site)
    cut(site, "n3", "n4")
    site.run(300)
    site.machine("n4").powered = False
    site.run(60)
    assert done_to(site, "n4")[:1] == ["set_down"], "its power is off"
    site.run(GRACE_S + 300, step_s=5)
    assert done_to(site, "n3") == []


@pytest.mark.sampled
@pytest.mark.parametrize("late_s", [0, 4, 8, 12])
@pytest.mark.parametrize("interval_s", [15.0, 60.0])
def test_a_companion_whose_agent_has_a_longer_interval_of_its_own_is_one_in_time(
    interval_s: float, late_s: int
) -> None:
    site = Site(16, can=BLIND)
    site.machine("n4").heartbeat_s = interval_s
    fenced_jobs(site)
    site.run(61)
    while not site.machine("n4").next_beat_s - site.clock.elapsed_s <= interval_s - late_s:
        site.run(1)
    cut(site, "n3", "n4")
    site.run(300)
    assert done_to(site, "n3") == []


class TestRestarts:
    """The controller starts in the middle of a cut, and is ready after three seconds as in the practice."""

    @staticmethod
    def restart(site: Site, down_s: int = 0) -> None:
        for _ in range(down_s):
            site.clock.advance(1)
            site.world_moves()
        site.start_controller()
        site.loop.observer.cold_start_s = 3

    def test_a_suspicion_stays_until_its_node_is_heard(self) -> None:
        site = Site(16, can=BLIND)
        cut(site, "n3", "n4")
        site.run(60)
        self.restart(site)
        for _ in range(60):
            site.run(1)
            assert site.incident("n3").state is IncidentState.SUSPECTED
        assert len(site.store.incidents(node="n3")) == 1

    def test_a_node_that_slurm_has_set_down_is_not_forgotten(self) -> None:
        site = Site(16, can=BLIND)
        cut(site, "n3", "n4")
        site.run(400, step_s=2)
        assert site.slurm.nodes["n3"].down
        self.restart(site)
        site.run(60)
        assert site.incident("n3").state is IncidentState.SUSPECTED
        back(site)
        site.run(200, step_s=2)
        assert site.store.incidents(only_open=True) == ()

    @pytest.mark.sampled
    @pytest.mark.parametrize("before_s", [0, 2, 5, 8, 9, 10, 11, 12, 13])
    @pytest.mark.parametrize("down_s", [0, 5, 60])
    def test_a_cut_in_which_the_controller_starts_makes_no_node_alone(self, before_s: int, down_s: int) -> None:
        site = Site(16, can=BLIND)
        fenced_jobs(site)
        cut(site, "n3", "n4")
        site.run(before_s)
        self.restart(site, down_s)
        site.run(300 - before_s - down_s)
        assert done_to(site, "n3") == []
        assert done_to(site, "n4") == []
        site.run(GRACE_S + 300, step_s=10)
        assert done_to(site, "n3") == []

    def test_a_death_alone_is_found_by_the_controller_that_starts_after_it(self) -> None:
        site = Site(16, can=BLIND)
        fenced_jobs(site)
        site.machine("n3").powered = False
        site.run(3)
        self.restart(site)
        site.run(60)
        assert done_to(site, "n3") == ["set_down"]

    def test_the_companion_of_before_the_start_is_back(self) -> None:
        site = Site(16, can=BLIND)
        fenced_jobs(site)
        cut(site, "n3", "n4")
        site.run(60)
        back(site, "n4")
        self.restart(site, 20)
        site.run(GRACE_S + 300, step_s=5)
        assert done_to(site, "n3") == []


class TestGrace:
    """A machine is left alone for fifteen minutes after its last sign of life, whatever it was."""

    def test_it_counts_from_the_kernels_last_answer(self) -> None:
        site = Site(16, can=BLIND)
        fenced_jobs(site)
        site.machine("n3").agent_up = False
        site.run(1200, step_s=5)
        cut(site, "n3")
        site.run(GRACE_S - 10, step_s=2)
        assert done_to(site, "n3") == ["set_down"]
        site.run(120)
        assert done_to(site, "n3")[1:], "alone, and without a sign of life for this long"

    def test_it_counts_from_a_peers_last_answer(self) -> None:
        site = Site(16, can=BLIND)
        fenced_jobs(site)
        site.machine("n3").cut_off = True
        site.run(1200, step_s=5)
        cut(site, "n3")
        site.run(GRACE_S - 30, step_s=2)
        assert done_to(site, "n3") in ([], ["set_down"], ["drain"])

    def test_it_counts_from_the_last_step_of_its_job(self) -> None:
        site = Site(16, can=BLIND)
        site.slurm.slurmd_timeout_s = 3600.0
        site.read_background()
        job = site.slurm.submit(2, comment="holdfast", exclusive=True)
        name, other = job.nodes
        site.run(5)
        cut(site, name)
        for number in range(120):
            site.agents.state(site.machine(other), "progress", job.job_id, 0, step=number)
            site.run(10)
        assert done_to(site, name) == []
        site.run(GRACE_S - 60, step_s=2)
        assert [d for d in done_to(site, name) if d not in ("drain", "set_down")] == []

    @pytest.mark.parametrize("down_s", [0, 120])
    def test_it_counts_from_there_for_the_next_controller(self, down_s: int) -> None:
        site = Site(16, can=BLIND)
        fenced_jobs(site)
        site.machine("n3").agent_up = False
        site.run(1200, step_s=5)
        cut(site, "n3")
        TestRestarts.restart(site, down_s)
        site.run(GRACE_S - down_s - 40, step_s=2)
        assert [d for d in done_to(site, "n3") if d not in ("drain", "set_down")] == []

    def test_a_cut_after_an_outage_of_the_agent_has_companions(self) -> None:
        """By the kernel's last answer they fell silent together; by their agents' last reports, twenty minutes apart."""
        site = Site(16, can=BLIND)
        fenced_jobs(site)
        site.machine("n3").agent_up = False
        site.run(1200, step_s=5)
        cut(site, "n3", "n4")
        site.run(200)
        assert done_to(site, "n3") == []
        assert done_to(site, "n4") == []


def test_a_rolling_reboot_by_hand_pages_once_an_hour() -> None:
    """One node after another, unannounced."""
    site = Site(32, can=BLIND)
    for number in range(1, 33):
        site.provider.power_cycle(f"n{number}")
        site.run(150, step_s=3)
    told = [s for s in site.notices.sent if "not report" in s]
    assert 1 <= len(told) <= 2, told
    assert len(set(site.notices.bodies)) == len(site.notices.bodies)


def test_a_cut_that_grows_is_told_again() -> None:
    site = Site(100, can=BLIND)
    cut(site, "n3", "n4")
    site.run(120)
    cut(site, *(f"n{n}" for n in range(5, 25)))
    site.run(120)
    assert len([s for s in site.notices.sent if s.startswith("2 nodes")]) == 1
    assert len([s for s in site.notices.sent if s.startswith("22 nodes")]) == 1, site.notices.sent
