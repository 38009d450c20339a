"""Drains that slurmctld itself set are taken over, and count for the brakes; those of operators are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.model.actions.action import IntentState, Reboot
from holdfast.model.book import BrakeKind
from holdfast.model.incidents.incident import IncidentKind, IncidentState
from holdfast_checks.result import Remedy, Severity
from support.simulated import Site
from support.simulated.provider import FULL

_S = IncidentState
REAL = [
    "Kill task failed",
    "gres/gpu count reported lower than configured (7 < 8)",
    "Prolog error",
    "Epilog error",
    "Kill task failed (JobId=4711 StepId=0)",
    "Kill task failed (JobId=4711 StepId=0+1)",
    "Kill task failed (JobId=4711 StepId=extern)",
    "Low RealMemory (reported:1000 < 100.00% of configured:2000)",
    "Low TmpDisk",
    "Duplicate jobid",
]


def _drained(reason: str, user: str = "slurm", node: str = "n1") -> Site:
    site = Site(4)
    site.slurm.operator_drains(node, reason, user)
    return site


@pytest.mark.parametrize("reason", REAL)
def test_slurms_own_drain_becomes_an_owned_incident(reason: str) -> None:
    site = _drained(reason)
    site.run(70)
    incident = site.incident("n1")
    assert (incident.kind, reason in incident.headline) == (IncidentKind.SLURM_DRAIN, True)
    assert site.slurm.nodes["n1"].reason.startswith(f"holdfast[{incident.id}]")


@pytest.mark.parametrize(
    ("reason", "user"),
    [
        ("Prolog error", "root"),
        ("Prolog error", "ops"),
        ("Kill task failed", "ops"),
        ("Prolog error; ticket 4711", "slurm"),
        ("looked at: Epilog error", "slurm"),
        ("psu", "slurm"),
        ("Kill task failed (ticket 4711: leave it to me)", "root"),
        ("Kill task failed (4711)", "root"),
        ("Kill task failed (JobId=4711 StepId=0) ", "root"),
        ("Duplicate jobid (4711)", "slurm"),
        ("gres/gpu count reported lower than configured", "slurm"),
        ("gres/gpu count reported lower than configured (board is ordered)", "slurm"),
        ("Low RealMemory (DIMM is ordered)", "slurm"),
        ("Epilog error (on call: see 4711)", "slurm"),
    ],
)
def test_a_drain_that_another_user_set_or_changed_is_theirs(reason: str, user: str) -> None:
    site = _drained(reason, user)
    site.run(600, step_s=5)
    assert (site.slurm.calls, site.store.incidents(node="n1")) == ([], ())
    assert site.slurm.nodes["n1"].reason == reason


@pytest.mark.parametrize("note", ["ticket 4711: leave it to me", "vendor on site"])
def test_a_note_that_root_puts_behind_slurms_words_makes_the_drain_theirs(note: str) -> None:
    site = _drained("Kill task failed", "root")
    site.run(20)
    site.slurm.operator_drains("n1", f"Kill task failed ({note})", "root")
    site.run(900, step_s=5)
    assert (site.slurm.calls, site.provider.terminated) == ([], {})
    assert site.slurm.nodes["n1"].reason == f"Kill task failed ({note})"


def test_a_step_that_did_not_end_is_slurmds_word_in_roots_name() -> None:
    site = _drained("Kill task failed", "root")
    site.run(900, step_s=5)
    assert site.incident("n1").state is _S.CLOSED
    assert [u.reason.startswith("holdfast[") for u in site.slurm.undrained] == [True], "rebooted, validated, put back"
    assert site.provider.terminated == {}


GRES = "gres/gpu count reported lower than configured (7 < 8)"


@pytest.mark.parametrize("reason", [GRES, "Kill task failed", "Duplicate jobid"])
def test_slurms_word_alone_ends_no_machine(reason: str) -> None:
    """A wrong line in gres.conf looks like a lost GPU. Here no one can reboot the node."""
    site = Site(4, can=replace(FULL, reboot=False))
    site.slurm.operator_drains("n1", reason, "slurm")
    site.run(900, step_s=5)
    assert (site.provider.terminated, site.provider.tokens) == ({}, {})
    assert site.incident("n1").state is _S.AWAITING_HUMAN
    assert "no check finds anything wrong with the machine" in site.incident("n1").note


@pytest.mark.parametrize("reason", [GRES, "Kill task failed", "Duplicate jobid"])
def test_a_machine_that_is_new_is_not_exchanged_for_slurms_word(reason: str) -> None:
    """The record of the previous machine's fault says nothing about this one."""
    site = Site(20)
    site.fault("n1")
    site.run(900, step_s=5)
    assert list(site.provider.terminated) == ["i-0001"]
    site.run(3 * 3600, step_s=60)
    site.slurm.operator_drains("n1", reason, "slurm")
    site.run(1800, step_s=5)
    assert list(site.provider.terminated) == ["i-0001"]
    assert (site.incident("n1").state, site.kinds(site.incident("n1").id).count("Reboot")) == (_S.CLOSED, 1)


def test_a_node_that_slurm_drains_again_after_its_reboot_is_a_humans() -> None:
    site = _drained(GRES)
    site.run(900, step_s=5)
    assert site.incident("n1").state is _S.CLOSED
    rebooted = site.kinds().count("Reboot")
    assert rebooted == 1
    site.slurm.operator_drains("n1", GRES, "slurm")
    site.run(900, step_s=5)
    assert (site.incident("n1").state, site.kinds().count("Reboot")) == (_S.AWAITING_HUMAN, 1)
    assert site.provider.terminated == {}


def test_a_gpu_that_is_lost_has_its_machine_exchanged_as_ever() -> None:
    site = Site(4, can=replace(FULL, reboot=False))
    site.slurm.operator_drains("n1", GRES, "slurm")
    site.run(10)
    site.fault("n1", check="gpu.count", code="missing", sticky=True)
    site.run(900, step_s=5)
    assert len(site.provider.terminated) == 1


def test_a_failed_prolog_is_a_humans_to_repair() -> None:
    site = _drained("Prolog error")
    site.run(300, step_s=5)
    assert site.incident("n1").state is _S.AWAITING_HUMAN
    assert site.provider.tokens == {}
    site.slurm.operator_resumes("n1")
    site.run(5)
    assert site.incident("n1").state is _S.CLOSED


@pytest.mark.parametrize(
    ("reason", "brake"),
    [
        ("Prolog error", BrakeKind.DRAINS),
        ("Kill task failed", BrakeKind.TASK_DRAINS),
        ("Epilog error", BrakeKind.TASK_DRAINS),
    ],
)
def test_a_broken_prolog_on_every_node_trips_the_brake_and_nothing_is_repaired(reason: str, brake: BrakeKind) -> None:
    site = Site(20)
    for n in range(20):
        site.slurm.operator_drains(f"n{n + 1}", reason, "slurm")
        site.run(2)
    site.run(600, step_s=5)
    assert set(site.book.brakes) == {brake}
    assert (site.slurm.calls, site.provider.tokens, site.provider.terminated) == ([], {}, {})
    assert {node.reason for node in site.slurm.nodes.values()} == {reason}


def _left_over(site: Site, *nodes: str) -> None:
    for node in nodes:
        site.slurm.operator_drains(node, "Kill task failed", "root")


def test_what_a_users_jobs_leave_behind_stops_no_drain_for_hardware() -> None:
    site = Site(400)
    _left_over(site, *(f"n{n}" for n in range(1, 6)))
    site.run(120)
    assert set(site.book.brakes) == {BrakeKind.TASK_DRAINS}
    job = site.slurm.submit(2, comment="holdfast", exclusive=True, required=("n300", "n301"))
    site.run(3)
    site.fault("n300")
    site.run(20)
    assert (site.slurm.nodes["n300"].drain, job.state in ("PENDING", "RUNNING")) == (True, True)
    assert {site.slurm.nodes[f"n{n}"].reason for n in range(1, 6)} == {"Kill task failed"}
    (page,) = [each for each in map(str, site.notices.sent) if "brake 'task_drains' holds" in each]
    site.operate("release_brake", "task_drains")
    site.run(10)
    assert all(site.slurm.nodes[f"n{n}"].reason.startswith("holdfast[") for n in range(1, 6)), page


def test_faults_of_hardware_and_leftovers_of_jobs_trip_no_brake_together() -> None:
    site = Site(40)
    _left_over(site, "n1", "n2", "n3")
    site.run(90)
    for node in ("n4", "n5", "n6"):
        site.fault(node)
    site.run(10)
    assert (site.book.brakes, all(site.slurm.nodes[n].drain for n in ("n4", "n5", "n6"))) == ({}, True)


def test_a_fault_that_joins_makes_it_a_fault_of_the_node() -> None:
    site = Site(40)
    _left_over(site, "n1", "n2", "n3", "n4", "n5")
    site.run(5)
    assert site.incident("n1").users_doing
    site.fault("n1")
    site.run(10)
    assert not site.incident("n1").users_doing


def test_half_of_the_reboots_are_kept_for_faults_that_no_job_can_cause() -> None:
    site = Site(400)
    for n in (1, 2, 3):
        _left_over(site, f"n{n}")
        site.run(300, step_s=5)
    taken = [i for i in site.store.intents() if isinstance(i.action, Reboot) and i.state is not IntentState.WITHHELD]
    assert len({i.action.target.node for i in taken}) == 2
    assert "half of budget" in site.incident("n3").note


def test_a_drain_that_is_cleared_or_changed_before_it_is_taken_over_is_left_alone() -> None:
    site = _drained("Epilog error")
    site.run(30)
    site.slurm.operator_resumes("n1")
    site.run(60)
    assert (site.incident("n1").state, site.slurm.calls) == (_S.CLOSED, [])


def test_an_operator_who_changes_the_reason_right_before_keeps_the_node() -> None:
    site = _drained("Kill task failed")

    def takes(intent: object, moment: str) -> None:
        if moment == "started":
            site.slurm.operator_drains("n1", "ticket 4711")

    site.at_boundary = takes
    site.run(300, step_s=5)
    assert (site.slurm.nodes["n1"].reason, site.slurm.calls) == ("ticket 4711", [])
    assert site.incident("n1").state is _S.AWAITING_HUMAN


def test_an_incident_that_an_operator_closed_is_not_opened_again_for_the_same_drain() -> None:
    site = _drained("Epilog error")
    site.run(5)
    first = site.incident("n1")
    site.operate("close", first.id)
    site.run(300, step_s=5)
    assert (site.incident("n1").id, site.slurm.calls) == (first.id, [])


def test_nothing_is_recognised_while_slurm_user_is_not_known() -> None:
    site = Site(4)
    site.loop.observer.background.newest = type(site.loop.observer.background.newest)()
    site._reads_at_s = 1e9
    site.slurm.operator_drains("n1", "Prolog error", "slurm")
    site.run(120)
    assert (site.slurm.calls, site.store.incidents(node="n1")) == ([], ())


@pytest.mark.parametrize("reason", ["Not responding", "Node unexpectedly rebooted"])
def test_a_persons_drain_in_slurms_words_for_down_is_theirs_and_their_resume_ends_the_incident(reason: str) -> None:
    """slurmctld sets a node DOWN with this reason, and drains none."""
    site = _drained(reason, "ops")
    site.run(5)
    site.fault("n1")
    site.run(900, step_s=5)
    assert (site.slurm.calls, site.provider.terminated, site.provider.tokens) == ([], {}, {})
    assert site.slurm.nodes["n1"].reason == reason
    assert site.incident("n1").note, "an operator can read why it waits"
    site.slurm.operator_resumes("n1")
    site.run(5)
    assert site.incident("n1").state is _S.CLOSED
    site.fault("n1", code="63")
    site.run(5)
    assert ("drain", "n1") in site.slurm.calls


def test_a_machine_that_is_switched_off_under_a_persons_drain_in_slurms_words_is_left_alone() -> None:
    site = _drained("Not responding", "ops")
    site.run(5)
    site.machine("n1").powered = False
    site.run(3600, step_s=5)
    assert (site.slurm.calls, site.provider.terminated, site.provider.tokens) == ([], {}, {})


def test_a_node_that_is_down_without_a_reason_is_someones() -> None:
    """``State=DOWN`` in slurm.conf."""
    site = Site(4)
    site.slurm.nodes["n1"].down = True
    site.run(5)
    site.fault("n1")
    site.run(900, step_s=5)
    assert (site.slurm.calls, site.provider.terminated, site.provider.tokens) == ([], {}, {})
    assert site.slurm.nodes["n1"].down
    assert site.incident("n1").note


def test_a_drain_that_an_operator_overwrites_at_once_is_not_counted_as_done() -> None:
    site = Site(4)
    site.run(2)
    plain = site.slurm.drain

    def overwritten(node: str, reason: str) -> None:
        plain(node, reason)
        site.slurm.operator_drains(node, "ticket 4711")

    site.slurm.drain = overwritten  # type: ignore[method-assign]
    site.fault("n1")
    site.run(300, step_s=5)
    assert site.slurm.nodes["n1"].reason == "ticket 4711"
    assert "n1" not in site.book.marks
    assert site.provider.terminated == {}


def test_disks_that_jobs_fill_stop_no_drain_for_hardware() -> None:
    site = Site(40)
    full = {"check": "host.disk", "code": "full", "component": "/tmp", "severity": Severity.DEGRADED}
    for n in range(1, 10):
        site.fault(f"n{n}", remedy=Remedy.HUMAN, minor=None, **full)
    site.run(10)
    assert (set(site.book.brakes), site.slurm.nodes["n1"].drain) == ({BrakeKind.TASK_DRAINS}, False)
    site.fault("n30")
    site.fault("n9")
    site.run(10)
    assert (site.slurm.nodes["n30"].drain, site.slurm.nodes["n9"].drain) == (True, True)


@pytest.mark.parametrize("adds", [False, True], ids=["22.05", "23.02"])
def test_a_drain_of_ours_on_a_node_that_slurm_then_sets_down_stays_ours(adds: bool) -> None:
    """From 23.02 on Slurm appends `` : Not responding`` to the reason, in its own name."""
    site = Site(4)
    site.slurm.adds_to_reasons = adds
    site.provider.boot_s = 900
    site.fault("n1")
    site.run(30)
    site.machine("n1").powered = False
    site.run(600, step_s=5)
    node = site.slurm.nodes["n1"]
    assert (node.down, node.reason.endswith("Not responding")) == (True, adds)
    assert site.incident("n1").state is _S.REPAIRING
    site.run(3600, step_s=5)
    assert site.incident("n1").state is _S.CLOSED
    assert not site.slurm.nodes["n1"].drain


def test_a_persons_drain_with_slurms_words_behind_it_stays_theirs() -> None:
    site = _drained("psu", "ops")
    site.slurm.adds_to_reasons = True
    site.machine("n1").powered = False
    site.run(1800, step_s=5)
    assert site.slurm.nodes["n1"].reason == "psu : Not responding"
    assert (site.slurm.calls, site.provider.terminated) == ([], {})
