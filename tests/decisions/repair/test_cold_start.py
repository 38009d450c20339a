"""A controller that has just started has received no report yet: no decision about a node or a job relies on that, even if it was
away for longer than any timeout."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.controller.observing.agents import Hello
from holdfast.decisions.repair.ladder import Rung
from holdfast.model.actions.action import Intent
from holdfast.model.incidents.incident import IncidentKind, IncidentState
from holdfast.model.machine import ProviderCan
from holdfast_checks.result import Remedy, Severity
from support.simulated import Machine, Site
from support.simulated.provider import FULL, IN_PLACE
from support.simulated.site import POLICY

_S = IncidentState
LATE_S = 9.0
"""When the agents' first heartbeats come after the start."""


def away(site: Site, seconds: float) -> None:
    """Time passes without a controller and an actor; jobs, machines and agents continue."""
    until_s = site.clock.elapsed_s + seconds
    while site.clock.elapsed_s < until_s:
        site.clock.advance(1)
        site.world_moves()


def starts(site: Site) -> None:
    """A fresh controller; the agents' heartbeats are to come."""
    site.start_controller()
    for machine in site.machines.values():
        machine.next_beat_s = site.clock.elapsed_s + LATE_S


def test_the_repair_begins_where_the_evidence_says_and_the_evidence_is_collected() -> None:
    """An agent that does not report can neither reset a GPU nor collect evidence: both were left out, and the node rebooted."""
    site = Site(2)
    job = site.slurm.submit(1, exclusive=True)
    site.run(5)
    site.fault("n1", remedy=Remedy.RESET_GPU)
    site.run(10)
    assert site.incident("n1").state is _S.CONTAINED
    site.slurm.finish(job, "COMPLETED")
    away(site, 20)
    starts(site)
    site.run(LATE_S - 1)
    assert (site.incident("n1").state, site.incident("n1").rung) == (_S.CONTAINED, "")
    assert "the controller has just started: waits for the node's agent" in site.incident("n1").note
    site.run(5)
    assert site.incident("n1").rung == Rung.RESET_GPU
    orders = [i.key for i in site.store.intents() if i.incident_id == site.incident("n1").id and "evidence" in i.key]
    assert orders


@pytest.mark.parametrize("can", [FULL, IN_PLACE])
def test_a_machine_that_came_up_while_no_controller_listened_was_not_too_late(can: ProviderCan) -> None:
    site = Site(2, can=can)
    site.fault("n1")
    site.run(1)
    while site.incident("n1").state is not _S.REPAIRING or not site.provider.tokens:
        site.run(1)
    away(site, POLICY.repair.launch_timeout_s + 600)
    starts(site)
    site.run(600, step_s=2)
    assert site.incident("n1").state is _S.CLOSED, site.story()
    assert (len(site.provider.tokens), site.incident("n1").repair_attempt) == (1, 0)


@pytest.mark.parametrize("jobs", [0, 1])
def test_a_node_that_slurm_set_down_while_no_controller_listened_is_repaired(jobs: int) -> None:
    """It was idle, or its job was over by then: only Slurm's own reason spoke of it, and it stayed DOWN for ever."""
    site = Site(4)
    job = site.slurm.submit(1, exclusive=True) if jobs else None
    site.run(5)
    site.machine("n1").powered = False
    away(site, 700)
    assert site.slurm.nodes["n1"].down
    assert job is None or "n1" not in job.nodes or job.state != "RUNNING"
    starts(site)
    site.run(1500, step_s=5)
    incident = site.incident("n1")
    assert (incident.kind, incident.state) == (IncidentKind.SILENCE, _S.CLOSED), site.story()
    node = site.slurm.nodes["n1"]
    assert (node.down, node.drain) == (False, False)


def test_a_node_that_slurm_set_down_and_that_nothing_shows_off_is_told_of() -> None:
    site = Site(4, can=replace(FULL, status=False))
    site.machine("n1").powered = False
    away(site, 700)
    starts(site)
    site.run(120, step_s=5)
    assert [i.node for i in site.store.incidents(only_open=True)] == ["n1"]
    assert site.provider.terminated == {}


def test_nodes_that_an_operator_took_down_are_not_suspected_after_a_start() -> None:
    site = Site(4)
    site.slurm.set_down("n1", "psu on order")
    site.machine("n1").powered = False
    away(site, 700)
    starts(site)
    site.run(600, step_s=5)
    assert site.store.incidents() == ()


def test_the_only_machine_heard_so_far_is_not_taken_for_the_nodes() -> None:
    """Another machine under the node's name (a clone, one that was to be ended) may report first."""
    site = Site(2)
    before = site.book.nodes["n1"]
    starts(site)
    hello = Hello("n1", "i-9999", "boot-x", interval_s=10.0)
    site.agents.registry.heard(hello, site.clock.now(), site.clock.monotonic_s())
    site.run(LATE_S - 1)
    assert site.book.nodes["n1"] == before


def test_a_fault_does_not_end_since_another_machine_was_heard_first() -> None:
    site = Site(2)
    job = site.slurm.submit(1, exclusive=True)
    site.run(5)
    site.fault("n1", sticky=True)
    site.run(5)
    site.slurm.finish(job, "COMPLETED")
    away(site, 5)
    starts(site)
    hello = Hello("n1", "i-9999", "boot-x", interval_s=10.0, all_ok=True)
    site.agents.registry.heard(hello, site.clock.now(), site.clock.monotonic_s())
    site.run(LATE_S - 1)
    assert (site.incident("n1").state, site.incident("n1").machine) == (_S.CONTAINED, "")


def test_a_dispute_is_not_over_since_the_agent_that_claims_is_not_heard_yet() -> None:
    site = Site(4)
    site.machine("n4").instance_id = "i-0002"
    site.run(30)
    (dispute,) = [i for i in site.store.incidents(only_open=True) if i.kind is IncidentKind.DISPUTED]
    starts(site)
    site.fault("n4", remedy=Remedy.REBOOT)
    site.run(60)
    assert [i.id for i in site.store.incidents() if i.kind is IncidentKind.DISPUTED] == [dispute.id]
    assert (site.provider.cycled, site.incident("n4").state in (_S.CONTAINED, _S.REPAIRING)) == ({}, True)


def test_a_job_that_failed_while_no_controller_ran_is_unexplained_only_once_the_reports_had_time_to_come() -> None:
    site = Site(6)
    job = site.slurm.submit(4, comment="holdfast", exclusive=True)
    site.run(5)
    at = site.clock.now()
    site.slurm.finish(job, "FAILED")
    away(site, 60)
    starts(site)
    site.run(5)
    site.fault("n3", fault_at=at)  # its agent sends what waited in its outbox
    site.run(60)
    assert [i.kind for i in site.store.incidents() if i.kind is IncidentKind.UNEXPLAINED] == []
    assert job.restarts == 1


def test_a_node_that_cannot_be_fenced_is_told_of_once_there_is_something_to_tell() -> None:
    site = Site(6)
    site.provider.sees_power = False
    job = site.slurm.submit(2, exclusive=True)
    site.run(5)
    site.machine("n1").cut_off = True
    site.machine("n1").unreachable_by = {f"n{n}" for n in range(1, 7)}
    site.run(90)
    assert site.incident("n1").dead
    job.comment = "holdfast"
    starts(site)
    site.run(20)
    assert not [s for s in site.notices.sent if "cannot be fenced" in s]
    site.run(30)
    (body,) = [b for s, b in site.notices.bodies if "cannot be fenced" in s]
    assert "the head node does not reach its port" in body


def test_what_a_paused_fault_was_is_not_over_since_its_node_is_not_heard_yet() -> None:
    """After a maintenance an event counts only in the boot that still runs; the agent reports which one that is."""
    site = Site(4)
    site.operate("pause")
    site.fault("n1")
    site.run(5)
    site.slurm.operator_reserves("vendor", "n1", hours=0.1)
    site.run(400 + POLICY.maintenance.grace_s, step_s=5)
    assert site.incident("n1").state is _S.OPEN
    starts(site)
    site.run(LATE_S - 1)
    assert site.incident("n1").state is _S.OPEN
    site.run(60)
    assert site.incident("n1").state is _S.OPEN, site.story()


def test_an_order_whose_answer_no_controller_took_is_not_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A validation that failed for that cost the machine that had passed it, and another one was launched."""
    site = Site(2)
    plain = site.agents._take

    def takes_and_is_cut_off(machine: Machine, order: Intent) -> None:
        machine.cut_off = True
        plain(machine, order)

    site.fault("n1")
    site.run(1)
    while site.incident("n1").state is not _S.REPAIRING:
        site.run(1)
    monkeypatch.setattr(site.agents, "_take", takes_and_is_cut_off)
    while not site.agents.waiting:
        site.run(1)
    (answer,) = site.agents.waiting
    away(site, 3 * POLICY.repair.validate_timeout_s)
    starts(site)
    site.run(LATE_S - 1)
    monkeypatch.setattr(site.agents, "_take", plain)
    site.machines[answer.instance_id].cut_off = False
    site.run(600, step_s=2)
    assert site.incident("n1").state is _S.CLOSED, site.story()
    assert (list(site.provider.tokens.values()), site.incident("n1").repair_attempt) == ([answer.instance_id], 0)


def test_a_watched_warning_does_not_close_before_the_reports_had_time_to_come() -> None:
    site = Site(2)
    site.fault("n1", severity=Severity.WARNING, remedy=Remedy.NONE)
    site.run(5)
    away(site, POLICY.watch_s + 600)
    starts(site)
    site.run(LATE_S)
    assert site.incident("n1").state is _S.WATCHING
    site.run(60, step_s=5)
    assert site.incident("n1").state is _S.CLOSED
