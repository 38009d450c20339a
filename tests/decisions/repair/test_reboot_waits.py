"""``scontrol reboot`` of a node that runs a job: it serves until Slurm starts the reboot, and is repaired as any other until then."""

from __future__ import annotations

import pytest

from holdfast.model.incidents.incident import IncidentState
from support.simulated import Site
from support.simulated.provider import FULL, IN_PLACE
from support.simulated.slurm import SimJob

_S = IncidentState


def _waits(**changed: object) -> tuple[Site, SimJob]:
    """A site on which Slurm waits for a job to reboot its node."""
    site = Site(6)
    job = site.slurm.submit(2, comment="holdfast", exclusive=True, **changed)
    site.registers(job)
    site.run(5)
    site.slurm.operator_orders_reboot(job.nodes[0])
    site.run(5)
    assert site.slurm.nodes[job.nodes[0]].reboot == "REBOOT_REQUESTED"
    return site, job


def test_a_fatal_fault_drains_the_node_its_job_recovers_and_the_repair_waits_for_the_reboot() -> None:
    site, job = _waits()
    name = job.nodes[0]
    machine = site.machine(name).instance_id
    site.fault(name)
    site.run(20)
    assert ("drain", name) in site.slurm.calls
    assert (job.state, name in job.nodes, job.restarts) == ("RUNNING", False, 1)
    site.run(600, step_s=2)
    assert site.machine(name).boot == 2, "Slurm rebooted it, once its job was gone"
    assert (site.provider.cycled, site.provider.terminated) == ({}, {})
    assert site.machine(name).instance_id == machine
    assert (site.incident(name).state, site.slurm.nodes[name].drain) == (_S.CLOSED, False)


def test_a_repair_waits_while_the_reboot_does() -> None:
    """The node's slurmd responds, and the reboot has not begun: another job holds it."""
    site, job = _waits()
    name = job.nodes[0]
    site.slurm.nodes[name].reboot_at_s += 300
    site.fault(name)
    site.run(120, step_s=2)
    incident = site.incident(name)
    assert (incident.state, "once its jobs are over" in incident.note) == (_S.CONTAINED, True)
    assert (site.provider.tokens, site.provider.cycled, site.provider.terminated) == ({}, {}, {})


@pytest.mark.parametrize("can", [FULL, IN_PLACE], ids=["beside", "in place"])
def test_a_death_is_judged(can: object) -> None:
    site, job = _waits()
    site.provider.can = can  # type: ignore[assignment]
    name = job.nodes[0]
    site.machine(name).powered = False
    site.run(120)
    assert site.incident(name).dead
    assert ("set_down", name) in site.slurm.calls
    assert (job.state, name in job.nodes) == ("RUNNING", False)
    site.run(900, step_s=5)
    assert site.incident(name).state is _S.CLOSED


def test_a_node_whose_reboot_waits_is_no_spare() -> None:
    site = Site(4, spares=("n4",))
    job = site.slurm.submit(3, comment="holdfast", exclusive=True)
    site.run(5)
    site.slurm.nodes["n4"].reboot, site.slurm.nodes["n4"].reboot_at_s = "REBOOT_REQUESTED", 1e9
    site.fault(job.nodes[0])
    site.run(60)
    assert "n4" not in job.nodes


def test_a_reboot_that_has_begun_explains_silence_and_a_fault_of_it_waits() -> None:
    site = Site(4)
    site.provider.boot_s = 300
    site.slurm.operator_orders_reboot("n1")
    site.run(5)
    assert site.slurm.nodes["n1"].reboot == "REBOOT_ISSUED"
    site.run(1000, step_s=5)
    assert (site.slurm.calls, site.store.incidents(node="n1"), site.notices.sent) == ([], (), [])
    assert site.machine("n1").boot == 2
