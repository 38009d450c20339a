"""A machine rebooted while its drain was withheld: earlier findings neither drain it nor stop a job that started since."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from holdfast.model.book import Brake, BrakeKind, Change
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.policies.policy import Mode
from support.simulated import Site
from support.simulated.site import POLICY

_S = IncidentState


def _pause(site: Site) -> None:
    site.operate("pause")


def _brake(site: Site) -> None:
    lease = site.loop.lease
    assert lease is not None
    brake = Brake(BrakeKind.DRAINS, site.clock.now(), "too many")
    site.store.commit(Change(brakes=(brake,)), lease.fence)


def _observe(site: Site) -> None:
    site.policy = replace(POLICY, mode=Mode.OBSERVE)
    site.start_controller()
    site.start_actor()
    site.run(31)
    site.read_background()


def _resume(site: Site) -> None:
    site.operate("resume")


def _release(site: Site) -> None:
    site.operate("release_brake", "drains")


def _act(site: Site) -> None:
    site.policy = POLICY
    site.start_controller()
    site.start_actor()
    site.run(31)
    site.read_background()


Does = Callable[[Site], None]
WITHHELD = pytest.mark.parametrize(
    ("withhold", "let_go"),
    [(_pause, _resume), (_observe, _act), (_brake, _release)],
    ids=["pause", "observe", "brake"],
)


def _rebooted_by_bmc(site: Site) -> None:
    site.provider.power_cycle("n1")
    site.run(60)
    site.slurm.finds_rebooted("n1")
    site.run(10)


def _left_alone(site: Site) -> None:
    job = site.slurm.submit(4, comment="holdfast", exclusive=True)
    assert "n1" in job.nodes
    site.run(40)
    assert ("drain", "n1") not in site.slurm.calls, site.story()
    assert site.incident("n1").state is _S.CLOSED, site.story()
    assert (job.state, job.restarts) == ("RUNNING", 0)


@WITHHELD
@pytest.mark.parametrize("all_ok", [True, False], ids=["all ok", "a warning stands"])
def test_a_node_that_was_rebooted_and_resumed_is_left_alone(withhold: Does, let_go: Does, all_ok: bool) -> None:
    site = Site(4)
    withhold(site)
    site.machine("n1").all_ok = all_ok
    site.fault("n1")
    site.run(5)
    _rebooted_by_bmc(site)
    site.slurm.operator_resumes("n1")
    site.run(5)
    let_go(site)
    site.run(20)
    _left_alone(site)


@WITHHELD
def test_one_that_slurm_took_back_by_itself_is_left_alone_once_all_checks_pass(withhold: Does, let_go: Does) -> None:
    site = Site(4)
    site.slurm.return_to_service = 2
    withhold(site)
    site.fault("n1")
    site.run(5)
    site.provider.power_cycle("n1")
    site.run(60)
    let_go(site)
    site.run(20)
    _left_alone(site)


def test_a_node_that_slurm_took_back_by_itself_is_not_taken_for_one_that_was_resumed() -> None:
    site = Site(4)
    site.slurm.return_to_service = 2
    site.read_background()
    site.operate("pause")
    site.machine("n1").all_ok = False
    site.fault("n1")
    site.run(5)
    _rebooted_by_bmc(site)
    site.slurm.operator_resumes("n1")
    site.run(5)
    site.operate("resume")
    site.run(20)
    assert ("drain", "n1") in site.slurm.calls, site.story()


def test_what_is_still_so_drains_all_the_same() -> None:
    site = Site(4)
    site.operate("pause")
    site.machine("n1").all_ok = False
    site.fault("n1", check="gpu.lost", code="lost", sticky=True)
    site.run(5)
    _rebooted_by_bmc(site)
    site.slurm.operator_resumes("n1")
    site.run(5)
    site.operate("resume")
    site.run(20)
    assert ("drain", "n1") in site.slurm.calls, site.story()


def test_what_is_found_after_the_resume_drains() -> None:
    site = Site(4)
    site.operate("pause")
    site.fault("n1")
    site.run(5)
    _rebooted_by_bmc(site)
    site.slurm.operator_resumes("n1")
    site.run(5)
    first = site.incident("n1")
    assert first.state is _S.CLOSED
    site.fault("n1")
    site.run(5)
    site.operate("resume")
    site.run(20)
    assert ("drain", "n1") in site.slurm.calls, site.story()
    assert site.incident("n1").id != first.id


def test_a_node_that_slurmctld_has_forgotten_was_resumed_by_no_one() -> None:
    site = Site(4)
    site.operate("pause")
    site.machine("n1").all_ok = False
    site.fault("n1")
    site.run(5)
    _rebooted_by_bmc(site)
    site.slurm.start_cold()
    site.run(5)
    site.operate("resume")
    site.run(20)
    assert ("drain", "n1") in site.slurm.calls, site.story()


def test_a_reboot_is_no_proof_for_a_node_that_had_another_fault_today_but_its_job_runs_on() -> None:
    site = Site(4)
    site.fault("n1")
    site.run(400, step_s=5)
    assert site.incident("n1").state is _S.CLOSED
    site.operate("pause")
    site.fault("n1", code="63")
    site.run(5)
    site.provider.power_cycle("n1")
    site.run(60)
    job = site.slurm.submit(4, comment="holdfast", exclusive=True)
    assert "n1" in job.nodes
    site.operate("resume")
    site.run(40)
    assert site.slurm.nodes["n1"].drain, site.story()
    assert (job.state, job.restarts) == ("RUNNING", 0)


def test_the_history_of_the_node_keeps_the_fault() -> None:
    site = Site(4)
    site.operate("pause")
    site.machine("n1").all_ok = False
    site.fault("n1")
    site.run(5)
    _rebooted_by_bmc(site)
    site.slurm.operator_resumes("n1")
    site.run(5)
    site.read_background()
    (outage,) = site.loop.observer.background.newest.outages
    assert (outage.node, outage.by_others, outage.excused) == ("n1", True, False)
    assert outage.back_at is not None
