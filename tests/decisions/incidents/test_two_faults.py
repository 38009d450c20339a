"""A job that is known to one incident loses another of its nodes: its recovery continues under the incident that stops it."""

from __future__ import annotations

import pytest

from holdfast.model.actions.action import HoldNodes, PromoteSpare
from holdfast.model.incidents.incident import RecoveryPhase
from support.simulated import Site
from support.simulated.slurm import SimJob


def _dies(site: Site, name: str) -> None:
    site.machine(name).powered = False


def _told(consent: str = "") -> tuple[Site, SimJob]:
    """A job on n1 and n2 that did not opt in; n1 has a fault, and n5 is a spare."""
    site = Site(5, spares=("n5",))
    site.slurm.slurmd_timeout_s = 0  # so that Holdfast ends the run, and not Slurm
    site.read_background()
    job = site.slurm.submit(2, comment=consent, exclusive=True)
    site.run(1)
    site.fault("n1")
    site.run(3)
    assert site.recovery(job.job_id).phase is RecoveryPhase.AWAITING_CONSENT
    return site, job


def test_a_job_that_awaits_consent_and_loses_another_node_is_recovered_for_that() -> None:
    site, job = _told()
    _dies(site, "n2")
    site.run(400)
    assert (job.state, job.restarts) == ("RUNNING", 1)
    recovery = site.recovery(job.job_id)
    assert recovery.incident_id == site.incident("n2").id
    mine = [i for i in site.store.intents() if isinstance(i.action, HoldNodes | PromoteSpare)]
    assert {i.incident_id for i in mine} == {recovery.incident_id}
    assert "n5" in job.nodes
    site.run(900, step_s=5)
    assert set(site.slurm.reservations) == {"holdfast-spares"}


@pytest.mark.parametrize("outage_s", [15, 40])
def test_what_slurm_did_not_take_of_that_is_ordered_again(outage_s: int) -> None:
    site, job = _told()
    _dies(site, "n2")
    while not any(isinstance(i.action, PromoteSpare) for i in site.store.intents()):
        site.clock.advance(1)
        site.world_moves()
        site.turn()
        if not any(isinstance(i.action, PromoteSpare) for i in site.store.intents()):
            site.act()
    site.slurm.away = True
    site.run(outage_s)
    site.slurm.away = False
    site.run(60)
    assert (job.state, job.restarts) == ("RUNNING", 1)
    assert "n5" in job.nodes, site.story()


def test_the_end_of_the_first_incident_does_not_end_it() -> None:
    site, job = _told()
    site.provider.away = True
    _dies(site, "n2")
    site.run(400)
    assert site.recovery(job.job_id).phase is RecoveryPhase.WAITING
    site.operate("close", site.incident("n1").id)
    site.run(5)
    waiting = site.recovery(job.job_id)
    assert (waiting.phase, waiting.incident_id) == (RecoveryPhase.WAITING, site.incident("n2").id)
    site.provider.away = False
    site.run(60)
    assert (job.state, job.restarts) == ("RUNNING", 1)


def test_an_operator_who_takes_the_first_one_over_does_not_keep_the_job_from_the_second() -> None:
    site = Site(5, spares=("n5",))
    job = site.slurm.submit(2, exclusive=True)
    site.run(1)
    site.fault("n1")
    site.run(3)
    site.operate("acknowledge", site.incident("n1").id)
    site.run(3)
    assert site.recovery(job.job_id).phase is RecoveryPhase.GONE
    site.fault("n2")
    site.run(3)
    site.slurm.finish(job, "FAILED")
    site.run(60)
    assert (job.restarts, site.recovery(job.job_id).incident_id) == (0, site.incident("n2").id)
    assert "scontrol requeue" in site.recovery(job.job_id).note, (
        "it did not opt in: its owner is notified of the second fault"
    )
