"""What must never go wrong: actions on what is not ours, garbage from a node, crossed steps. Each is provoked."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from holdfast.actor.carry_out import carry_out
from holdfast.decisions.common.slurm_view import fresh_view
from holdfast.model.actions.action import (
    Action,
    AdoptSpare,
    HoldJob,
    Intent,
    IntentState,
    PromoteSpare,
    Requeue,
    SendOrder,
    Terminate,
    Verb,
)
from holdfast.model.agents.report import OrderOutcome
from holdfast.model.incidents.incident import IncidentKind, IncidentState, RecoveryPhase
from holdfast.model.slurm.cluster import Reservation
from holdfast.ports import IntentOutcome
from support.simulated import EPOCH, Machine, Site


def ordered(site: Site, action: Action, state: IntentState = IntentState.PLANNED) -> IntentOutcome:
    """What the actor does with one step."""
    intent = Intent("inc/step/1", "inc", action, "a test", 1, state, site.clock.now())
    return carry_out(intent, site.actor.outside)


# Machines of others


def test_an_agents_word_about_its_machine_ends_nobody_elses() -> None:
    site = Site()
    job = site.slurm.submit(4, gpus=2)
    said = replace(site.machine("n1"), instance_id=site.machine("n2").instance_id)
    site.agents.find(said, minor=None, check="host.pcie")
    site.run(60)
    site.slurm.finish(job, "COMPLETED")
    site.run(900)
    assert site.provider.terminated["i-0002"] == 0
    assert site.incident("n1").kind is IncidentKind.DISPUTED
    assert any("i-0002 is claimed by n1, and is n2's machine" in text for text in site.notices.sent)
    assert site.provider.candidates() == set(), "nothing is launched for the lie"


@pytest.mark.parametrize("fence", [False, True])
def test_a_machine_of_another_node_is_not_terminated(fence: bool) -> None:
    site = Site()
    outcome = ordered(site, Terminate("i-0002", "n1", fence=fence))
    assert (outcome.state, outcome.text) == (IntentState.REFUSED, "i-0002 is n2's machine, not n1's: left alone")
    assert site.provider.terminated == {}


def test_a_machine_that_serves_is_not_terminated_while_the_provider_does_not_know_who_serves() -> None:
    site = Site()
    site.provider.forget_who_serves("n1")
    assert ordered(site, Terminate("i-0001", "n1")).state is IntentState.REFUSED
    assert site.provider.terminated == {}


# Jobs of others


def test_a_run_that_its_user_started_meanwhile_is_not_held() -> None:
    site = Site()
    job = site.slurm.submit(1, comment="holdfast")
    before = site.slurm.job(job.job_id).key
    site.slurm.requeue(job.job_id)
    site.run(5)
    site.slurm.release(job.job_id)
    assert (job.state, job.restarts) == ("RUNNING", 1)
    outcome = ordered(site, HoldJob(before, "poison"))
    assert outcome.state is IntentState.REFUSED
    assert job.state == "RUNNING"


def test_a_job_that_its_user_cancels_while_it_is_to_be_requeued_stays_cancelled() -> None:
    site = Site()
    job = site.slurm.submit(1, comment="holdfast")
    key = site.slurm.job(job.job_id).key
    site.slurm.finish(job, "CANCELLED")
    assert job.state == "COMPLETING"
    outcome = ordered(site, Requeue(key, 0))
    assert (outcome.state, outcome.retryable) == (IntentState.FAILED, True)
    site.run(5)
    assert job.state == "CANCELLED"
    assert ordered(site, Requeue(key, 0)).state is IntentState.REFUSED


@pytest.mark.parametrize("end", ["OUT_OF_MEMORY", "DEADLINE", "PREEMPTED"])
def test_a_job_that_ended_in_its_own_way_is_not_revived(end: str) -> None:
    site = Site()
    job = site.slurm.submit(1, comment="holdfast")
    key = site.slurm.job(job.job_id).key
    site.slurm.finish(job, end)
    site.run(5)
    assert ordered(site, Requeue(key, 0)).state is IntentState.REFUSED


def test_a_node_cannot_speak_for_a_job_on_another() -> None:
    """Neither to have it stopped, nor to have its old run taken for fenced."""
    site = Site()
    job = site.slurm.submit(1, user="bob", uid=1001)
    assert job.nodes == ("n1",)
    lie: dict[str, Any] = {"uid": 1001, "path": "/theirs", "detail": {"fenced": True}}
    site.agents.state(site.machine("n2"), "checkpoint.register", job.job_id, 0, **lie)
    site.fault("n1")
    site.run(30)
    assert (job.state, job.restarts) == ("RUNNING", 0)
    assert site.recovery(job.job_id).phase is RecoveryPhase.AWAITING_CONSENT
    site.agents.state(site.machine("n1"), "checkpoint.register", job.job_id, 0, **lie)
    site.run(30)
    assert job.restarts == 1, "its own node's report counts, whatever was reported before"


def test_a_node_cannot_have_the_old_run_of_another_nodes_job_taken_for_fenced() -> None:
    site = Site()
    job = site.slurm.submit(1, user="bob", uid=1001)
    lie: dict[str, Any] = {"uid": 1001, "path": "/theirs", "detail": {"fenced": True}}
    site.agents.state(site.machine("n2"), "checkpoint.register", job.job_id, 0, **lie)
    site.provider.away = True
    machine = site.machine("n1")
    machine.cut_off, machine.unreachable_by = True, {"n2", "n3", "n4"}
    site.run(90)
    assert site.incident("n1").dead
    assert (job.state, job.restarts) == ("RUNNING", 0), "it trains on unseen: no second writer"


# What users and operators set


def test_a_job_in_its_users_own_reservation_stays_in_it() -> None:
    site = Site(4, spares=("n4",))
    site.slurm.reservations["course"] = Reservation("course", ("n1", "n2", "n3"), ("ada",))
    job = site.slurm.submit(2, comment="holdfast", reservation="course")
    assert job.nodes == ("n1", "n2")
    site.fault("n1")
    site.run(30)
    assert (job.state, job.nodes, job.reservation) == ("RUNNING", ("n2", "n3"), "course")
    assert site.slurm.reservations["holdfast-spares"].nodes == ("n4",), "a spare outside it is of no use"


def test_nodes_that_somebody_reserved_for_later_are_not_held_beyond_it() -> None:
    site = Site(4)
    job = site.slurm.submit(3, comment="holdfast")
    later = EPOCH.replace(hour=23)
    site.slurm.reservations["maint"] = Reservation(
        "maint", ("n2",), ("root",), flags=frozenset({"MAINT"}), start_time=later
    )
    site.fault("n1")
    site.react()
    assert job.restarts == 0
    held = [r for name, r in site.slurm.reservations.items() if name.startswith("holdfast-")]
    assert [r.nodes for r in held] == [("n3",)]


def test_two_changes_of_the_spare_pool_at_once_do_not_undo_each_other() -> None:
    site = Site(4, spares=("n1", "n2", "n3"))
    plain = site.slurm.reservation

    def slow(name: str) -> Reservation:
        shown = plain(name)
        time.sleep(0.02)
        return shown

    site.slurm.reservation = slow  # type: ignore[method-assign]
    steps: list[Action] = [PromoteSpare("n1", None), PromoteSpare("n2", None), AdoptSpare("n4")]
    threads = [threading.Thread(target=ordered, args=(site, step)) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert site.slurm.reservations["holdfast-spares"].nodes == ("n3", "n4")


# A node thought dead


def test_a_node_that_is_heard_again_before_anything_was_done_is_left_alone() -> None:
    site = Site()
    job = site.slurm.submit(2)
    machine = site.machine("n1")
    site.provider.away = True
    machine.cut_off, machine.unreachable_by = True, {"n2", "n3", "n4"}
    site.run(60)
    assert site.incident("n1").dead
    machine.cut_off, machine.unreachable_by = False, set()
    site.run(15)
    site.provider.away = False
    site.run(90)
    assert site.incident("n1").state is IncidentState.CLOSED
    assert (job.state, job.restarts) == ("RUNNING", 0)
    assert site.provider.terminated == {}


# Missing and wrong data


@pytest.mark.parametrize("nonsense", [7, None, {"a": 1}, "GPU-1", [[1], None]])
def test_what_a_node_says_of_its_gpus_cannot_stop_the_controller(
    nonsense: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site()
    plain = site.agents._carry_out

    def lies(machine: Machine, order: Intent) -> OrderOutcome:
        said = plain(machine, order)
        assert isinstance(order.action, SendOrder)
        detail: dict[str, Any] = {"gpu_uuids": nonsense}
        return replace(said, detail=detail) if order.action.verb is Verb.VALIDATE else said

    monkeypatch.setattr(site.agents, "_carry_out", lies)
    site.fault("n1")
    site.run(400)
    assert site.incident("n1").state is IncidentState.CLOSED
    assert site.machine("n1").instance_id == "i-0005"


def test_a_view_from_the_future_is_no_fresh_view() -> None:
    """The clock was set back: the age of the view is unknown."""
    site = Site()
    world = site.loop.world
    assert world is not None
    assert world.view is not None
    assert fresh_view(world) is not None
    ahead = replace(world.view, read_at=world.now.replace(year=world.now.year + 1))
    assert fresh_view(replace(world, view=ahead)) is None


def test_a_heterogeneous_job_is_not_requeued_in_parts() -> None:
    site = Site()
    job = site.slurm.submit(1, comment="holdfast", het_leader=99)
    site.fault(job.nodes[0], minor=0)
    site.run(10)
    assert site.recovery(job.job_id).phase is RecoveryPhase.LEFT_ALONE
    assert (job.state, job.restarts) == ("RUNNING", 0)
    assert "heterogeneous" in job.admin_comment
