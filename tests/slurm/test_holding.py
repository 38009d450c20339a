"""Nodes kept by a reservation instead of a drain: shown as drained, closed to all other jobs, and no operator's setting undone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.model.errors import NotFound, Rejected
from holdfast.model.ids import held_reason, hold_name, incident_of_reason, slurm_reason
from holdfast.ports import Scheduler
from holdfast.practice import Practice
from holdfast.slurm import open_scheduler
from holdfast.slurm.commands import SlurmCommands
from holdfast.slurm.holding import HeldByReservation
from support.practice import eventually
from support.simulated.clock import SimClock
from support.simulated.slurm import SimSlurm

ONE, TWO = "0a1b2c3d4e5f", "0a1b2c3d4e5g"
REASON = slurm_reason(ONE, "gpu.xid: GPU 3 has fallen off the bus")


@pytest.fixture
def sim() -> SimSlurm:
    return SimSlurm(SimClock(), ("n1", "n2", "n3"))


@pytest.fixture
def slurm(sim: SimSlurm) -> HeldByReservation:
    return HeldByReservation(sim)


def test_a_held_node_is_shown_drained_and_is_not_drained(sim: SimSlurm, slurm: Scheduler) -> None:
    slurm.drain("n1", REASON)
    shown = slurm.node("n1")
    assert shown.draining
    assert shown.out_of_service
    assert shown.reason == held_reason(ONE)
    assert incident_of_reason(shown.reason) == ONE
    assert shown.reason_time is not None
    assert slurm.view().nodes["n1"] == shown
    assert not slurm.node("n2").out_of_service
    assert not sim.node("n1").draining
    assert set(sim.view().reservations) == {hold_name(ONE, "n1")}
    assert slurm.view().reservations == {}


def test_a_hold_that_one_reading_lacks_still_counts(
    sim: SimSlurm, slurm: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.drain("n1", REASON)
    assert slurm.view().nodes["n1"].draining
    whole = sim.view()
    monkeypatch.setattr(sim, "view", lambda: replace(whole, reservations={}))
    assert slurm.view().nodes["n1"].draining
    assert not slurm.view().nodes["n1"].draining


def test_no_job_starts_on_a_held_node_and_a_running_one_goes_on(sim: SimSlurm, slurm: Scheduler) -> None:
    first = sim.submit(required=("n1",))
    slurm.drain("n1", REASON)
    second = sim.submit(required=("n1",))
    sim.step(lambda _node: True)
    assert (first.state, second.state) == ("RUNNING", "PENDING")
    slurm.undrain("n1")
    sim.finish(first, "COMPLETED")
    for _ in range(3):
        sim._clock.advance(1)
        sim.step(lambda _node: True)
    assert second.state == "RUNNING"
    assert sim.view().reservations == {}


def test_the_same_drain_twice_and_another_incidents(sim: SimSlurm, slurm: Scheduler) -> None:
    slurm.drain("n1", REASON)
    before = slurm.node("n1")
    slurm.drain("n1", REASON)
    assert slurm.node("n1") == before
    slurm.drain("n1", slurm_reason(TWO, "another"))
    assert set(sim.view().reservations) == {hold_name(TWO, "n1")}
    assert incident_of_reason(slurm.node("n1").reason) == TWO


def test_a_spare_can_be_held_and_is_a_spare_again(sim: SimSlurm, slurm: Scheduler) -> None:
    slurm.create_reservation("holdfast-spares", ("n2", "n3"), users=("root",), duration_s=None)
    slurm.drain("n2", REASON)
    assert slurm.view().reservations["holdfast-spares"].nodes == ("n2", "n3")
    slurm.undrain("n2")
    assert set(sim.view().reservations) == {"holdfast-spares"}


def test_a_held_node_leaves_the_holds_of_jobs(sim: SimSlurm, slurm: Scheduler) -> None:
    job_hold = f"holdfast-{TWO}-101"
    slurm.create_reservation(job_hold, ("n1", "n2"), users=("ada",), duration_s=600, hold_for_job=True)
    slurm.create_reservation("course", ("n1", "n2"), users=("bob",), duration_s=600, hold_for_job=True)
    slurm.drain("n1", REASON)
    assert sim.reservation(job_hold).nodes == ("n2",)
    assert sim.reservation("course").nodes == ("n1", "n2")


def test_down_without_drain_and_held(sim: SimSlurm, slurm: Scheduler) -> None:
    job = sim.submit(required=("n1",))
    slurm.set_down("n1", REASON)
    real = sim.node("n1")
    assert (real.down, real.draining) == (True, False)
    assert slurm.node("n1").draining
    assert job.state == "COMPLETING"
    assert hold_name(ONE, "n1") in sim.reservations


@pytest.mark.parametrize(
    "said",
    [
        "Static node maintenance: unhealthy node is being replaced",
        "Scheduler health check failed",
        "Not responding",
        "",
        slurm_reason(ONE, "dead"),
    ],
)
def test_what_a_program_says_takes_nothing_over(sim: SimSlurm, slurm: Scheduler, said: str) -> None:
    slurm.drain("n1", REASON)
    before = slurm.node("n1")
    sim.nodes["n1"].down, sim.nodes["n1"].reason = True, said
    shown = slurm.node("n1")
    assert (shown.reason, shown.reason_user, shown.reason_time) == (
        before.reason,
        before.reason_user,
        before.reason_time,
    )
    slurm.undrain("n1")
    assert not sim.node("n1").out_of_service


def test_a_persons_word_stands(sim: SimSlurm, slurm: Scheduler) -> None:
    slurm.drain("n1", REASON)
    sim.operator_drains("n1", "psu", "ops")
    shown = slurm.node("n1")
    assert (shown.reason, shown.reason_user) == ("psu", "ops")
    slurm.undrain("n1")
    assert sim.node("n1").draining
    assert sim.undrained == []
    assert sim.view().reservations == {}


def test_a_name_alone_holds_nothing(sim: SimSlurm, slurm: Scheduler) -> None:
    sim.create_reservation(hold_name(ONE, "n1"), ("n1", "n2"), users=("root",), duration_s=None)
    sim.create_reservation("holdfast-node-n2", ("n2",), users=("root",), duration_s=None)
    sim.create_reservation(hold_name(ONE, "gone"), ("n1",), users=("root",), duration_s=None)
    held = sim.reservations[hold_name(ONE, "gone")]
    sim.reservations[held.name] = replace(held, nodes=("gone",))
    assert not any(node.out_of_service for node in slurm.view().nodes.values())


@pytest.mark.parametrize("name", ["holdfast-upgrade", "holdfast-node-upgrade-n2", "holdfast-maint-0a1b2c3d4e5f"])
def test_an_operators_reservation_that_is_called_like_ours_keeps_its_nodes_and_is_shown(
    sim: SimSlurm, slurm: Scheduler, name: str
) -> None:
    sim.create_reservation(name, ("n1", "n2"), users=("root",), duration_s=None, hold_for_job=True)
    slurm.drain("n1", REASON)
    assert slurm.view().reservations[name].nodes == ("n1", "n2")
    assert not slurm.node("n2").out_of_service


def test_node_names_with_dashes() -> None:
    sim = SimSlurm(SimClock(), ("train-st-p5-1", "train-st-p5-11"))
    slurm = HeldByReservation(sim)
    slurm.drain("train-st-p5-1", REASON)
    assert [n for n, node in slurm.view().nodes.items() if node.draining] == ["train-st-p5-1"]


def test_refusals(slurm: Scheduler) -> None:
    with pytest.raises(Rejected, match="names no incident"):
        slurm.drain("n1", "no reason of ours")
    with pytest.raises(NotFound):
        slurm.node("n9")
    with pytest.raises(NotFound):
        slurm.undrain("n9")


def test_a_suspended_node_is_asleep(sim: SimSlurm) -> None:
    node = sim.node("n1")
    assert not node.asleep
    assert replace(node, flags=frozenset({"POWERED_DOWN"})).asleep
    assert not replace(node, flags=frozenset({"POWER_DOWN"})).asleep


@pytest.mark.slurm
def test_a_hold_in_a_real_slurm(practice: Practice) -> None:
    env = practice.command_env()
    slurm, plain = open_scheduler("commands", env=env, reserve=True), SlurmCommands(env=env)
    slurm.create_reservation("holdfast-spares", ("n2",), users=("root",), duration_s=None)
    slurm.create_reservation(f"holdfast-{TWO}-101", ("n1", "n3"), users=("root",), duration_s=600, hold_for_job=True)
    running = practice.sbatch("sleep 60", "-N1", "-w", "n5")
    eventually(lambda: slurm.job(running).state == "RUNNING")
    for name in ("n1", "n2", "n5"):
        slurm.drain(name, REASON)
        assert slurm.node(name).draining
        assert not plain.node(name).out_of_service
    assert slurm.job(running).state == "RUNNING"
    assert plain.reservation(f"holdfast-{TWO}-101").nodes == ("n3",)
    boot_id = practice.machine("n2").host.boot_id
    slurm.reboot("n2", slurm_reason(ONE, "reboot"))
    plainly = practice.sbatch("sleep 60", "-N1", "-w", "n5")
    slurm.set_down("n4", REASON)
    shown, real = slurm.node("n4"), plain.node("n4")
    assert (shown.down, shown.draining, real.down, real.draining) == (True, True, True, False)
    assert slurm.job(plainly).state == "PENDING"
    eventually(lambda: practice.machine("n2").host.boot_id != boot_id, within_s=15)
    eventually(lambda: slurm.node("n2").responding and not slurm.node("n2").down, within_s=15)
    eventually(lambda: not slurm.node("n2").flags & {"REBOOT_REQUESTED", "REBOOT_ISSUED"}, within_s=15)
    assert slurm.node("n2").draining
    assert slurm.node("n2").reason == held_reason(ONE)
    assert slurm.job(plainly).state == "PENDING"
    for name in ("n1", "n2", "n4", "n5"):
        slurm.undrain(name)
    assert not any(node.out_of_service for node in plain.view().nodes.values())
    assert set(plain.view().reservations) == {"holdfast-spares", f"holdfast-{TWO}-101"}
