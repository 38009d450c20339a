"""The lowest rung: the job failed of a fault that its node survives, so it starts again on the same node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.model.incidents.incident import IncidentState, RecoveryPhase
from holdfast_checks.result import Remedy, Severity
from support.simulated import Site
from support.simulated.site import POLICY
from support.simulated.slurm import SimJob

CONTAINED = {"code": "94", "severity": Severity.WARNING, "remedy": Remedy.RESTART_JOB}


def _failed(site: Site, comment: str = "holdfast", end: str = "FAILED", **fault: object) -> SimJob:
    job = site.slurm.submit(2, comment=comment, exclusive=True)
    site.run(2)
    site.fault(job.nodes[0], **{**CONTAINED, **fault})
    site.run(2)
    assert job.state == "RUNNING", "it is not stopped for it"
    site.slurm.finish(job, end)
    site.run(10)
    return job


def test_it_starts_again_on_the_same_nodes_and_the_node_is_left_alone() -> None:
    site = Site(4)
    job = _failed(site)
    assert (job.state, job.restarts, job.nodes, job.excluded) == ("RUNNING", 1, ("n1", "n2"), ())
    assert site.slurm.taken_out == []
    assert site.incident("n1").state is IncidentState.WATCHING
    assert not [n for n in site.slurm.reservations if n != POLICY.spare_reservation]


@pytest.mark.parametrize(
    ("comment", "end", "fault"),
    [
        ("", "FAILED", {}),
        ("holdfast", "COMPLETED", {}),
        ("holdfast", "CANCELLED", {}),
        ("holdfast", "FAILED", {"remedy": Remedy.NONE}),
    ],
)
def test_who_did_not_ask_for_it_or_did_not_fail_is_left_alone(comment: str, end: str, fault: dict[str, object]) -> None:
    site = Site(4)
    job = _failed(site, comment, end, **fault)
    assert (job.restarts, site.store.recoveries()) == (0, ())


def test_it_can_be_switched_off() -> None:
    site = Site(4, policy=replace(POLICY, job=replace(POLICY.job, restart_in_place=False)))
    assert _failed(site).restarts == 0


def test_a_job_that_fails_again_and_again_without_progress_is_held() -> None:
    site = Site(2)
    job = _failed(site)
    for _ in range(POLICY.job.restarts_without_progress + 1):
        if job.state == "RUNNING":
            site.fault(job.nodes[0], **CONTAINED)
            site.run(2)
            site.slurm.finish(job, "FAILED")
            site.run(10)
    assert site.recovery(job.job_id).phase is RecoveryPhase.HELD


def test_a_pause_delays_it_and_does_not_end_it() -> None:
    site = Site(4)
    site.operate("pause")
    job = _failed(site)
    assert (job.restarts, site.recovery(job.job_id).phase) == (0, RecoveryPhase.WAITING)
    site.operate("resume")
    site.run(10)
    assert job.restarts == 1
