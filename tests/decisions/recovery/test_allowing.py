"""Holdfast's exclusions in a job that its user queues again."""

from __future__ import annotations

import pytest

from support.simulated import Site
from support.simulated.slurm import SimJob


def _recovered(site: Site, **changed: object) -> tuple[SimJob, str]:
    """A job that a fault made Holdfast restart, and the node that it is kept off."""
    job = site.slurm.submit(1, comment="holdfast", exclusive=True, **changed)
    site.run(2)
    bad = job.nodes[0]
    site.fault(bad)
    site.run(5)
    assert (job.state, job.restarts, bad in job.excluded) == ("RUNNING", 1, True)
    return job, bad


def _set(site: Site) -> int:
    return len([c for c in site.slurm.calls if c[0] == "set_excluded_nodes"])


def test_what_we_added_is_taken_back_once_when_the_user_requeues() -> None:
    site = Site(5)
    job, bad = _recovered(site, excluded=("n5",))
    site.run(700, step_s=10)
    assert set(job.excluded) == {"n5", bad}
    site.slurm.requeue(job.job_id)
    site.run(5)
    assert (job.state, job.excluded) == ("PENDING", ("n5",))
    assert site.recovery(job.job_id).excluded_added == ()
    before = _set(site)
    job.excluded = ("n5", bad)  # by the user: it is the user's own now
    site.run(20)
    assert (job.excluded, _set(site)) == (("n5", bad), before)


def test_not_while_the_node_is_still_out() -> None:
    site = Site(5)
    job, bad = _recovered(site)
    site.slurm.requeue(job.job_id)
    site.run(5)
    assert job.excluded == (bad,)
    job.held = True
    site.run(700, step_s=10)
    assert not job.excluded


def test_not_of_a_running_job() -> None:
    site = Site(5)
    job, bad = _recovered(site)
    site.run(700, step_s=10)
    assert (job.state, job.excluded) == ("RUNNING", (bad,))


def test_not_where_nothing_may_be_done() -> None:
    site = Site(5)
    job, bad = _recovered(site)
    site.run(700, step_s=10)
    site.operate("pause")
    site.slurm.requeue(job.job_id)
    site.run(20)
    assert job.excluded == (bad,)
    site.operate("resume")
    site.run(5)
    assert not job.excluded


def test_of_a_held_suspect_too() -> None:
    site = Site(6)
    job, first = _recovered(site)
    site.run(700, step_s=10)
    for number in range(2):
        site.fault(job.nodes[0], code="109")
        site.run(900, step_s=10)
        assert job.held is bool(number)
    assert first not in job.excluded


@pytest.mark.parametrize("moment", ["planned", "started", "acted", "finished"])
def test_the_actor_may_die_at_every_boundary(moment: str) -> None:
    site = Site(5)
    job, _ = _recovered(site)
    site.run(700, step_s=10)
    site.kill_at = ("AllowNodes", moment)
    site.slurm.requeue(job.job_id)
    site.run(5)
    assert site.killed == 1
    assert not job.excluded


def test_slurm_away_is_tried_again() -> None:
    site = Site(5)
    job, bad = _recovered(site)
    site.run(700, step_s=10)
    site.slurm.requeue(job.job_id)
    site.world_moves()
    site.clock.advance(2)
    site.world_moves()
    site.turn()
    site.slurm.away = True
    site.act()
    site.slurm.away = False
    assert job.excluded == (bad,)
    site.run(5)
    assert not job.excluded
