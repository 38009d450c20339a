"""slurmctld forgets the drain of a dead node while its machine is replaced in place: the new machine serves under the same name."""

from __future__ import annotations

import pytest

from holdfast.model.incidents.incident import IncidentState
from support.simulated import Site
from support.simulated.provider import IN_PLACE
from support.simulated.site import NO_BUDGET

_S = IncidentState


def replaced() -> Site:
    """n4 is dead, its power off, and is replaced in place: the new machine boots."""
    site = Site(6, policy=NO_BUDGET, can=IN_PLACE)
    site.provider.sees_power = True
    machine = site.machine("n4")
    machine.powered, machine.cut_off = False, True
    machine.unreachable_by = set(site.slurm.nodes) - {"n4"}
    for _ in range(100):
        site.run(1)
        if site.store.incidents(node="n4") and site.incident("n4").state is _S.REPAIRING:
            return site
    raise AssertionError(site.story())


@pytest.mark.parametrize("after_s", [38, 39, 40])
def test_it_is_drained_again_until_it_has_proved_itself(after_s: int) -> None:
    """39: its slurmd is up, its agent has not reported."""
    site = replaced()
    site.run(after_s)
    site.slurm.start_cold()
    site.run(5)
    assert site.slurm.nodes["n4"].drain, site.story()
    site.run(600, step_s=2)
    assert site.incident("n4").state is _S.CLOSED, site.story()
    assert "validated" in site.story(site.incident("n4").id)
    assert site.machine("n4").instance_id == "i-0007"
    assert not site.slurm.nodes["n4"].drain


@pytest.mark.parametrize("agent_after_s", [5, 70, 300])
def test_a_job_that_began_there_runs_on_and_no_other_begins(agent_after_s: int) -> None:
    site = replaced()
    machine = site.machine("n4")
    machine.agent_up = False
    site.run(41)
    site.slurm.start_cold()
    job = site.slurm.submit(6, comment="holdfast", exclusive=True)
    site.run(agent_after_s)
    machine.agent_up = True
    site.run(60)
    assert "n4" in job.nodes
    assert (site.slurm.nodes["n4"].drain, job.state, job.restarts) == (True, "RUNNING", 0)
    site.slurm.finish(job, "COMPLETED")
    site.run(300)
    assert (site.incident("n4").state, site.slurm.nodes["n4"].drain) == (_S.CLOSED, False), site.story()


def test_a_job_that_began_on_the_faulty_machine_is_recovered_while_another_one_is_validated_beside_it() -> None:
    site = Site(4, policy=NO_BUDGET)
    site.fault("n1")
    site.run(1)
    while site.incident("n1").state is not _S.VALIDATING:
        site.run(1)
    site.run(2)
    site.slurm.start_cold()
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    assert job.nodes == ("n1", "n2")
    site.run(30)
    assert (job.state, job.restarts) == ("RUNNING", 1), site.story()
    assert "n1" not in job.nodes
