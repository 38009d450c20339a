"""Hands off: what operators have taken over is recorded, and no action is taken on it until it is given back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.decisions.recovery.started_again import now_says
from holdfast.model.incidents.incident import IncidentState
from holdfast_checks.result import Remedy
from support.simulated import Site
from support.simulated.provider import FULL, IN_PLACE
from support.simulated.site import POLICY

_S = IncidentState


def _verbs(site: Site) -> list[str]:
    """What was done in Slurm."""
    return [verb for verb, _ in site.slurm.calls]


def _untouched(site: Site) -> bool:
    """Nothing was done in Slurm or at the provider."""
    return (site.slurm.calls, site.provider.terminated, site.provider.tokens) == ([], {}, {})


@pytest.mark.parametrize("can", [FULL, IN_PLACE])
def test_a_node_switched_off_in_a_maint_reservation_is_left_alone(can: object) -> None:
    site = Site(4, can=can)  # type: ignore[arg-type]
    site.slurm.operator_reserves("vendor", "n1", hours=4)
    site.machine("n1").powered = False
    site.run(3600, step_s=5)
    assert _untouched(site)
    assert site.store.incidents(node="n1") == (), "its silence is explained"


def test_a_node_switched_off_in_a_reservation_of_operators_is_left_alone() -> None:
    site = Site(4)
    site.slurm.operator_reserves("ops", "n1", flags=frozenset())
    site.machine("n1").powered = False
    site.run(3600, step_s=5)
    assert _untouched(site)


@pytest.mark.parametrize("flags", [frozenset(), frozenset({"MAINT"})], ids=["operators", "maint"])
@pytest.mark.parametrize("name", ["holdfast-upgrade", "holdfast-1kjmmb3pg001-77", "holdfast-node-upgrade-n1"])
def test_an_operators_reservation_may_be_called_like_ours(name: str, flags: frozenset[str]) -> None:
    """The store, not the name, says which reservations are Holdfast's own."""
    site = Site(4)
    site.run(2)
    site.slurm.operator_reserves(name, "n1", flags=flags)
    site.run(2)
    site.fault("n1")
    site.run(600, step_s=5)
    assert _untouched(site)
    assert f"reservation {name}" in site.incident("n1").note
    assert name in site.slurm.reservations


def test_a_step_is_not_done_in_a_reservation_that_is_called_like_ours() -> None:
    site = Site(4)
    site.run(2)

    def takes(_intent: object, moment: str) -> None:
        if moment == "started":
            site.slurm.operator_reserves("holdfast-upgrade", "n1", flags=frozenset())

    site.at_boundary = takes
    site.fault("n1")
    site.run(600, step_s=5)
    assert _untouched(site)


@pytest.mark.parametrize(("comment", "then"), [("holdfast", "moved off the node"), ("", "it did not opt in")])
def test_the_owner_of_a_job_on_a_faulty_node_in_maintenance_is_told(comment: str, then: str) -> None:
    site = Site(4)
    job = site.slurm.submit(1, comment=comment, exclusive=True, required=("n1",))
    job.required = ()
    site.run(2)
    site.slurm.operator_reserves("vendor", "n1", hours=1, flags=frozenset({"MAINT", "FLEX"}))
    site.run(2)
    site.fault("n1", check="gpu.lost", code="lost", sticky=True)
    site.run(600, step_s=5)
    assert [verb for verb in _verbs(site) if "tell" in verb.lower()] == _verbs(site)
    assert len(_verbs(site)) == 1, "it is reported once"
    told = job.admin_comment
    assert "n1 has a fault (gpu.lost" in told
    assert "MAINT reservation vendor until" in told
    assert then in told
    world = site.loop.observer.world()
    assert world.view is not None
    assert now_says(world, world.view.jobs[job.job_id], None) == told
    site.run(2 * 3600, step_s=5)
    assert job.restarts == (1 if comment else 0), "once the maintenance is over, it is as any other"
    assert job.admin_comment != told or comment


def test_a_node_in_its_users_reservation_is_healed_as_any_other() -> None:
    site = Site(4)
    site.slurm.operator_reserves("course", "n1", flags=frozenset())
    site.slurm.reservations["course"] = replace(site.slurm.reservations["course"], users=("ada",))
    site.fault("n1")
    site.run(5)
    assert ("drain", "n1") in site.slurm.calls


def test_a_node_that_an_operator_reboots_is_left_alone() -> None:
    site = Site(4)
    site.provider.boot_s = 300
    site.slurm.operator_reboots("n1")
    site.run(600, step_s=5)
    assert _untouched(site)
    assert site.store.incidents(node="n1") == ()


@pytest.mark.parametrize("nodes", [8, 40])
def test_many_nodes_in_a_window_freeze_nothing(nodes: int) -> None:
    """Half of the cluster is off for maintenance; a node elsewhere that dies is replaced all the same."""
    site = Site(nodes)
    off = [f"n{n}" for n in range(1, nodes // 2 + 1)]
    site.slurm.operator_reserves("vendor", *off, hours=4)
    for name in off:
        site.machine(name).powered = False
    site.run(120, step_s=5)
    assert site.loop.world is not None
    assert _untouched(site)
    site.fault(f"n{nodes}")
    site.run(30)
    assert ("drain", f"n{nodes}") in site.slurm.calls


def test_a_fault_in_a_window_is_recorded_and_nothing_is_done_until_it_ends() -> None:
    site = Site(4)
    site.slurm.operator_reserves("vendor", "n1", hours=1)
    site.run(2)
    site.fault("n1")
    site.run(1800, step_s=5)
    incident = site.incident("n1")
    assert (incident.state, _untouched(site)) == (_S.OPEN, True)
    assert "MAINT reservation vendor until" in incident.note
    site.run(2400, step_s=5)
    assert site.incident("n1").state is _S.CLOSED, "an event of that time, and nothing of it is still so"
    assert _untouched(site)


def test_a_state_that_is_still_so_at_the_end_of_a_window_is_acted_upon() -> None:
    site = Site(4)
    site.slurm.operator_reserves("vendor", "n1", hours=1)
    site.run(2)
    site.fault("n1", check="gpu.lost", code="lost", sticky=True)
    site.run(1800, step_s=5)
    assert _untouched(site)
    site.run(2400, step_s=5)
    assert ("drain", "n1") in site.slurm.calls


def test_a_node_that_slurm_set_down_in_a_window_and_that_never_comes_back_is_repaired() -> None:
    """Its job is over, and slurmctld's own DOWN is no operator's: it stayed DOWN for ever, without a notification."""
    site = Site(4)
    site.slurm.operator_reserves("vendor", "n1", hours=1)
    site.run(2)
    site.machine("n1").powered = False
    site.run(3000, step_s=5)
    assert site.slurm.nodes["n1"].down
    assert _untouched(site)
    site.run(2400, step_s=5)
    assert site.incident("n1").state is _S.CLOSED
    assert not site.slurm.nodes["n1"].down


def test_a_state_that_cleared_in_a_window_is_over() -> None:
    site = Site(4)
    site.slurm.operator_reserves("vendor", "n1", hours=1)
    site.run(2)
    found = site.agents.find(site.machine("n1"), check="gpu.lost", code="lost", sticky=True)
    site.run(600, step_s=5)
    site.agents.clear(site.machine("n1"), "gpu.lost", found.component)
    site.run(10)
    assert site.incident("n1").state is _S.CLOSED
    assert _untouched(site)


def test_a_repair_waits_while_its_node_is_in_maintenance_and_the_node_proves_itself_afterwards() -> None:
    site = Site(4, can=IN_PLACE)
    job = site.slurm.submit(1, required=("n1",), exclusive=True)
    site.fault("n1")
    site.run(10)
    assert site.incident("n1").state is _S.CONTAINED, "its job did not opt in"
    site.slurm.operator_reserves("vendor", "n1", hours=2)
    site.run(2)
    site.slurm.finish(job, "COMPLETED")
    before = list(site.slurm.calls)
    site.run(1800, step_s=5)
    incident = site.incident("n1")
    assert (incident.state, "MAINT reservation vendor" in incident.note) == (_S.CONTAINED, True)
    site.provider.power_cycle("n1")  # the vendor's work
    site.run(3600, step_s=5)
    assert (site.slurm.calls, site.provider.tokens) == (before, {})
    site.run(2700, step_s=5)
    assert site.incident("n1").state is _S.CLOSED
    assert (site.provider.terminated, site.provider.tokens) == ({}, {}), "another boot that proved itself is enough"
    assert ("undrain", "n1") in site.slurm.calls


def test_a_rungs_patience_does_not_run_out_in_a_window() -> None:
    site = Site(4)
    site.provider.boot_s = 120
    site.fault("n1", remedy=Remedy.REBOOT)
    site.run(20)
    assert site.incident("n1").state is _S.REPAIRING
    site.machine("n1").boots_at_s += 3 * 3600
    site.slurm.operator_reserves("vendor", "n1", hours=3)
    site.run(3.5 * 3600, step_s=10)
    assert site.provider.terminated == {}
    assert site.incident("n1").state is _S.CLOSED


def test_a_running_job_is_not_stopped_for_a_fault_in_a_window() -> None:
    site = Site(4)
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    site.slurm.operator_reserves("vendor", job.nodes[0], hours=1)
    site.run(2)
    site.fault(job.nodes[0])
    site.run(120)
    assert (job.state, job.restarts, _verbs(site)) == ("RUNNING", 0, ["tell_owner"])


def test_a_spare_in_maintenance_is_nobodys_spare() -> None:
    site = Site(5, spares=("n4", "n5"))
    site.slurm.operator_reserves("vendor", "n4", hours=1)
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    site.fault("n1")
    site.run(30)
    assert site.recovery(job.job_id).spare == "n5"


def test_nodes_in_maintenance_do_not_count_for_the_brake() -> None:
    site = Site(20)
    off = [f"n{n}" for n in range(1, 11)]
    site.slurm.operator_reserves("vendor", *off, hours=1)
    site.run(2)
    for name in off:
        site.fault(name)
    site.run(5)
    site.fault("n20")
    site.run(5)
    assert ("drain", "n20") in site.slurm.calls
    assert site.book.brakes == {}


@pytest.mark.parametrize("moment", ["planned"])
def test_a_step_is_not_done_if_the_node_was_taken_right_before(moment: str) -> None:
    """The window begins between the decision and the step."""
    site = Site(4)

    def reserve(intent: object, at: str) -> None:
        if at == moment and "vendor" not in site.slurm.reservations:
            site.slurm.operator_reserves("vendor", "n1", hours=1)

    site.at_boundary = reserve
    site.fault("n1")
    site.run(600, step_s=5)
    assert "drain" not in _verbs(site)
    assert site.provider.tokens == {}


def test_a_node_gets_time_to_report_after_its_window() -> None:
    site = Site(4)
    site.slurm.operator_reserves("vendor", "n1", hours=1)
    site.machine("n1").powered = False
    site.run(3600 + 600, step_s=5)
    assert _untouched(site), "the window is over for ten minutes: it may still boot"
    site.machine("n1").powered = True
    site.run(60)
    assert _untouched(site)


def test_holdfasts_own_spare_reservation_and_reboots_are_nobodys_hands() -> None:
    site = Site(4, spares=("n1",), policy=POLICY)
    site.fault("n1", remedy=Remedy.REBOOT)
    site.run(60)
    assert ("drain", "n1") in site.slurm.calls
    site.run(600, step_s=5)
    assert site.incident("n1").state is _S.CLOSED


def test_a_node_thought_dead_with_a_fault_seen_in_a_window_serves_again_after_it() -> None:
    """Found by the soak: it was drained at the moment that it reported again, and the incident was closed despite the drain."""
    site = Site(6)
    site.operate("pause")
    machine = site.machine("n3")
    machine.cut_off, machine.unreachable_by = True, set(site.slurm.nodes)
    site.run(60, step_s=5)
    assert site.incident("n3").dead
    site.slurm.operator_reserves("vendor", "n3")
    site.run(30, step_s=5)
    site.agents.find(machine, fault_at=site.clock.now(), check="gpu.xid", code="79")
    site.run(30, step_s=5)
    machine.cut_off, machine.unreachable_by = False, set()
    site.run(30, step_s=5)
    site.slurm.delete_reservation("vendor")
    site.operate("resume")
    site.run(600, step_s=5)
    assert (site.incident("n3").state, site.slurm.nodes["n3"].drain) == (_S.CLOSED, False), site.story()


def test_a_node_that_an_operator_fails_is_theirs() -> None:
    """``state=FAIL``: no drain, and Slurm starts no job there."""
    site = Site(4)
    site.slurm.operator_fails("n1", "psu smells, do not use")
    site.fault("n1")
    site.run(900, step_s=5)
    assert site.slurm.nodes["n1"].reason == "psu smells, do not use"
    assert (site.slurm.drained, site.slurm.undrained, site.provider.terminated, site.provider.candidates()) == (
        [],
        [],
        {},
        set(),
    )


def test_a_spare_that_an_operator_fails_is_none() -> None:
    site = Site(4, spares=("n4",))
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    site.slurm.submit(1, exclusive=True)
    site.run(3)
    site.slurm.operator_fails("n4")
    site.fault(job.nodes[0])
    site.run(60)
    assert "n4" not in job.nodes
    assert (site.slurm.nodes["n4"].name, site.slurm.nodes["n4"].reason) == ("n4", "bad fan")


def test_a_node_that_an_operator_fails_in_the_middle_of_its_repair_is_theirs() -> None:
    site = Site(4)
    site.fault("n1")
    site.run(5)
    site.slurm.operator_fails("n1", "leave it")
    site.run(900, step_s=5)
    assert (site.slurm.nodes["n1"].reason, site.slurm.undrained) == ("leave it", [])
    assert site.incident("n1").state is IncidentState.AWAITING_HUMAN
