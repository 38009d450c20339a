"""A job whose record is unreadable for a moment keeps the nodes that its user excluded: an unknown list is never overwritten."""

from __future__ import annotations

import pytest

from support.simulated.site import NO_BUDGET, Site
from support.simulated.slurm import SimJob


def in_doubt(site: Site, **changed: object) -> SimJob:
    """A job on two nodes with a fault on the first, while Slurm's record of it is in doubt."""
    job = site.slurm.submit(2, comment="holdfast", exclusive=True, excluded=("n5",), **changed)
    site.run(5)
    assert job.state == "RUNNING"
    job.in_doubt = True
    site.run(2)
    site.fault(job.nodes[0], check="host.disk", code="dead")
    return job


def until(site: Site, job: SimJob, state: str, most: int = 60) -> None:
    for _ in range(most):
        if job.state == state:
            return
        site.run(1)
    raise AssertionError(f"the job is {job.state}\n{site.story()}")


@pytest.mark.parametrize("long", [False, True])
def test_the_users_exclusions_come_through_a_recovery(long: bool) -> None:
    """The recovery began while they were unknown, and its release wrote a list without them."""
    site = Site(6, policy=NO_BUDGET)
    job = in_doubt(site)
    bad = job.nodes[0]
    until(site, job, "PENDING")
    assert job.excluded == ("n5",)
    if long:
        site.run(20)
        assert job.excluded == ("n5",), "nothing is written while the record is in doubt"
    job.in_doubt = False
    site.run(60)
    assert (job.state, job.restarts) == ("RUNNING", 1), site.story()
    assert "n5" in job.excluded
    assert bad not in job.nodes
    (recovery,) = site.book.recoveries.values()
    assert (recovery.excluded_before, recovery.exclusions_known) == (("n5",), True)


def test_a_job_in_doubt_for_good_starts_with_its_list_as_it_was() -> None:
    site = Site(6, policy=NO_BUDGET)
    job = in_doubt(site)
    site.run(300)
    assert (job.state, job.restarts) == ("RUNNING", 1), site.story()
    assert job.excluded == ("n5",)


def test_what_holdfast_excluded_is_not_forgotten_while_in_doubt() -> None:
    """It was thought to be withdrawn, and stayed in the job's list for good."""
    site = Site(6, policy=NO_BUDGET)
    job = site.slurm.submit(2, comment="holdfast", exclusive=True, excluded=("n5",))
    site.run(5)
    bad = job.nodes[0]
    site.fault(bad)
    site.run(10)
    assert (job.state, job.restarts) == ("RUNNING", 1), site.story()
    job.in_doubt = True
    site.slurm.requeue(job.job_id)
    site.run(10)
    assert job.state == "PENDING"
    added = {n for r in site.book.recoveries.values() for n in r.excluded_added}
    assert (bad in added, "n5" in added) == (True, False)
    site.run(200)
    assert job.excluded == tuple(sorted(("n5", bad)))
