"""A job that starts again in its hold avoids nodes that other reservations keep: Slurm itself would allow it there."""

from __future__ import annotations

from datetime import timedelta

from holdfast.model.errors import Rejected
from holdfast.model.slurm.cluster import Reservation
from support.simulated import Site
from support.simulated.slurm import SimJob


def _reserve(site: Site, node: str, *, in_s: float = 0.0) -> None:
    now = site.clock.now()
    begin, end = now + timedelta(seconds=in_s), now + timedelta(hours=5)
    site.slurm.reservations["course"] = Reservation("course", (node,), ("bob",), start_time=begin, end_time=end)


def _hurt(site: Site) -> SimJob:
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    site.run(2)
    site.fault("n1")
    site.run(30)
    return job


def test_without_a_spare_it_waits_rather_than_taking_a_reserved_node() -> None:
    site = Site(3)
    _reserve(site, "n3")
    job = _hurt(site)
    assert (job.restarts, job.state) == (1, "PENDING")
    del site.slurm.reservations["course"]
    site.run(10)
    assert (job.state, job.nodes) == ("RUNNING", ("n2", "n3"))


def test_spares_of_the_pool_are_nobodys_but_by_promotion() -> None:
    """Two jobs are affected, one spare is ready, and the rest is busy: the second job waits."""
    site = Site(8, spares=("n8",))
    first, second = (site.slurm.submit(2, comment="holdfast", exclusive=True) for _ in range(2))
    site.slurm.submit(3, exclusive=True)
    site.run(2)
    site.fault("n1")
    site.fault("n3")
    site.run(20)
    assert sorted([first.state, second.state]) == ["PENDING", "RUNNING"]
    assert not set(first.nodes) & set(second.nodes)


def test_the_users_own_exclusions_are_all_that_is_left_in_the_end() -> None:
    site = Site(4)
    _reserve(site, "n4")
    job = _hurt(site)
    assert (job.state, job.nodes) == ("RUNNING", ("n2", "n3"))
    assert job.excluded == ("n1", "n4")
    site.run(400, step_s=5)
    site.slurm.requeue(job.job_id)
    site.run(5)
    assert not job.excluded


def test_a_job_that_slurm_starts_during_its_release_costs_no_patience() -> None:
    """Slurm refuses the release of a job that it has just started: that was the goal, and the hold is removed at once."""
    site = Site(4)
    real, refused = site.slurm.release, []

    def release(job_id: int, *, reservation: str | None = None) -> None:
        real(job_id, reservation=reservation)
        site.slurm.step(lambda name: site.machine(name).slurmd(site.clock.elapsed_s))
        refused.append(site.clock.elapsed_s)
        raise Rejected("Job is not pending nor running")

    site.slurm.release = release  # type: ignore[method-assign]
    job = _hurt(site)
    assert job.state == "RUNNING"
    assert len(refused) == 1
    assert not site.slurm.reservations


def test_a_node_that_was_mended_may_be_the_jobs_next_spare() -> None:
    """It is still in the running job's exclusions, where Holdfast had put it."""
    site = Site(3, spares=("n3",))
    job = _hurt(site)
    assert (job.nodes, job.excluded) == (("n2", "n3"), ("n1",))
    site.run(300, step_s=5)
    site.fault("n2", check="host.pcie", minor=None)
    site.run(20)
    assert (job.state, job.nodes, job.excluded) == ("RUNNING", ("n1", "n3"), ("n2",))
