"""Spares right after a restart of the controller, before their first heartbeat."""

from __future__ import annotations

from support.simulated import Site
from support.simulated.slurm import SimJob


def _job_on_a_full_cluster() -> tuple[Site, SimJob]:
    site = Site(4, spares=("n4",))
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    site.slurm.submit(1, user="bob", uid=1001, exclusive=True)
    assert job.nodes == ("n1", "n2")
    site.run(15)
    return site, job


def _fault_after_a_restart(site: Site, job: SimJob) -> str | None:
    site.start_controller()
    assert site.loop.observer.agents.views() == {}
    site.fault("n1")
    site.react()
    return site.recovery(job.job_id).spare


def test_a_spare_that_was_heard_before_is_taken() -> None:
    site, job = _job_on_a_full_cluster()
    assert _fault_after_a_restart(site, job) == "n4"
    site.run(5)
    assert (job.state, job.restarts, job.nodes) == ("RUNNING", 1, ("n2", "n4"))


def test_one_that_was_suspected_is_not() -> None:
    site, job = _job_on_a_full_cluster()
    site.machine("n4").agent_up = False
    site.run(40)
    assert site.incident("n4").open
    assert _fault_after_a_restart(site, job) is None


def test_one_that_slurm_does_not_hear_is_not() -> None:
    site, job = _job_on_a_full_cluster()
    site.machine("n4").powered = False
    site.run(2)
    assert _fault_after_a_restart(site, job) is None


def test_one_that_fell_silent_under_this_controller_is_not() -> None:
    site, job = _job_on_a_full_cluster()
    site.start_controller()
    site.run(12)
    site.machine("n4").agent_up = False
    site.run(28)
    site.fault("n1")
    site.react()
    assert site.recovery(job.job_id).spare is None


def test_once_every_agent_had_its_time_only_a_heard_one_counts() -> None:
    site, job = _job_on_a_full_cluster()
    site.machine("n4").agent_up = False
    site.start_controller()
    site.run(31)
    site.fault("n1")
    site.react()
    assert site.recovery(job.job_id).spare is None
