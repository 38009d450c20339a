"""A cold start of slurmctld reuses the ids of jobs that it forgot, while the incident that stopped the earlier jobs is open."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.decisions.common import job_checkpoints
from holdfast.model.actions.action import IntentState, Requeue, TellOwner
from holdfast.model.incidents.incident import RecoveryPhase
from holdfast.model.slurm import cluster
from holdfast_checks.result import Remedy
from support.simulated import Site
from support.simulated.site import NO_BUDGET
from support.simulated.slurm import SimJob


def again(consent: str = "holdfast") -> tuple[Site, SimJob]:
    """Job 100 was recovered from n1's fault; now there is another job 100 on n1, in its first run."""
    site = Site(4, policy=NO_BUDGET)
    first = site.slurm.submit(2, comment=consent, exclusive=True)
    site.run(2)
    site.fault("n1", remedy=Remedy.HUMAN)
    site.run(15)
    assert first.restarts == (1 if consent else 0)
    site.slurm.start_cold()
    site.slurm.forgotten_jobs = 0
    second = site.slurm.submit(2, comment=consent, exclusive=True)
    assert (second.job_id, second.nodes) == (first.job_id, ("n1", "n2"))
    site.slurm.requeued.clear()
    return site, second


def done(site: Site, kind: type) -> int:
    return sum(isinstance(i.action, kind) and i.state is IntentState.DONE for i in site.store.intents())


def test_the_later_job_is_recovered_like_the_earlier_one() -> None:
    site, job = again()
    site.run(120)
    assert (job.state, job.restarts) == ("RUNNING", 1), site.story()
    assert "n1" not in job.nodes
    assert [r.phase for r in site.book.recoveries.values()] == [RecoveryPhase.RESUMED] * 2
    assert done(site, Requeue) == 2
    assert not site.slurm.reservations
    attempts = [i.attempt for i in site.store.intents() if isinstance(i.action, Requeue)]
    assert attempts == [1, 2], "one step, and the numbers of its attempts continue"


def test_a_restart_of_controller_and_actor_stops_it_no_second_time() -> None:
    site, job = again()
    site.kill_at = ("Requeue", "acted")
    site.run(3)
    site.start_controller()
    site.run(120)
    assert (job.restarts, site.slurm.requeued.total()) == (1, 1)


def test_the_owner_of_the_later_job_is_told_as_well() -> None:
    site, job = again(consent="")
    site.run(60)
    assert (job.state, job.restarts) == ("RUNNING", 0)
    assert done(site, TellOwner) == 2


@pytest.mark.parametrize("registers", [False, True])
def test_a_later_job_inherits_no_checkpoint(registers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a day, here ten seconds. The user's earlier job under the same id had registered one: the later one counted as one that may
    be stopped and started again."""
    monkeypatch.setattr(cluster, "ANOTHER_JOBS", timedelta(seconds=10))
    site = Site(4, policy=NO_BUDGET)
    first = site.slurm.submit(2, exclusive=True)
    site.run(20)
    for kind, more in (("checkpoint.register", {"path": "/ckpt"}), ("checkpoint.saved", {"step": 5000})):
        site.agents.state(site.machine("n1"), kind, first.job_id, 0, **more)
    site.run(30)
    assert site.loop.world is not None
    assert (
        checkpoint := job_checkpoints.checkpoint_of(site.loop.world, site.slurm.view().jobs[first.job_id])
    ) is not None
    assert checkpoint.saved_step == 5000
    site.slurm.start_cold()
    site.slurm.forgotten_jobs = 0
    site.run(30)
    second = site.slurm.submit(2, exclusive=True)
    assert (second.job_id, second.nodes, second.uid) == (first.job_id, first.nodes, first.uid)
    site.run(20)
    if registers:
        site.agents.state(site.machine("n1"), "checkpoint.register", second.job_id, 0, path="/ckpt")
        site.run(5)
    site.fault("n1", remedy=Remedy.HUMAN)
    site.run(60)
    assert (second.state, second.restarts) == ("RUNNING", int(registers)), site.story()
