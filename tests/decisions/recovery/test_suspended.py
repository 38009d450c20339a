"""A suspended job is left as it is: queued again, Slurm would hold it, and ``scontrol resume`` is refused."""

from __future__ import annotations

import pytest

from holdfast.model.incidents.incident import IncidentState, RecoveryPhase
from support.simulated import Site
from support.simulated.slurm import SimJob


def _suspended(site: Site) -> SimJob:
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    site.run(2)
    site.slurm.operator_suspends(job)
    site.run(2)
    return job


def _phases(site: Site, job: SimJob) -> list[RecoveryPhase]:
    return [r.phase for r in site.store.recoveries(job_id=job.job_id)]


def test_it_is_not_queued_again_and_its_owner_is_told_once() -> None:
    site = Site(4)
    job = _suspended(site)
    site.fault("n1")
    site.run(1800, step_s=5)
    assert (job.state, job.restarts) == ("SUSPENDED", 0)
    assert _phases(site, job) == [RecoveryPhase.AWAITING_CONSENT]
    assert "suspended" in job.admin_comment
    assert [call for call in site.slurm.calls if call[0] == "tell_owner"] == [("tell_owner", str(job.job_id))]
    assert site.slurm.reservations == {}
    assert site.slurm.nodes["n1"].drain
    assert site.incident("n1").state is IncidentState.CONTAINED


def test_once_resumed_it_is_recovered_as_any_other() -> None:
    site = Site(4)
    job = _suspended(site)
    site.fault("n1")
    site.run(600, step_s=5)
    site.slurm.operator_suspends(job, on=False)
    site.run(60)
    assert (job.state, job.restarts) == ("RUNNING", 1)
    assert "n1" not in job.nodes


@pytest.mark.parametrize("kind", ["HoldNodes", "Requeue"])
def test_one_that_is_suspended_while_it_is_being_stopped_is_left_and_gets_its_nodes_back(kind: str) -> None:
    site = Site(4)
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    site.run(2)

    def suspends(intent: object, moment: str) -> None:
        if getattr(intent, "kind", "") == kind and moment == "started" and job.state == "RUNNING":
            site.slurm.operator_suspends(job)

    site.at_boundary = suspends
    site.fault("n1")
    site.run(600, step_s=5)
    assert (job.state, job.restarts) == ("SUSPENDED", 0)
    assert _phases(site, job) == [RecoveryPhase.AWAITING_CONSENT]
    assert site.slurm.reservations == {}
    site.at_boundary = lambda _intent, _moment: None
    site.slurm.operator_suspends(job, on=False)
    site.run(120)
    assert (job.state, job.restarts) == ("RUNNING", 1)


def test_its_dead_node_is_not_set_down_under_it() -> None:
    site = Site(6)
    job = _suspended(site)
    site.machine("n1").powered = False
    site.run(120)
    assert site.incident("n1").dead
    assert (job.state, job.restarts) == ("SUSPENDED", 0)
    assert ("set_down", "n1") not in site.slurm.calls
