"""A job's report of its steps is a sign of life of its nodes; how long one user's reports may keep other users waiting."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.controller.timing import pace
from holdfast.model.incidents.incident import IncidentState
from support.simulated import Site, agents
from support.simulated.network import cut
from support.simulated.provider import FULL
from support.simulated.slurm import SimJob

BLIND = replace(FULL, status=False)
ADA, BOB = ("ada", 1000), ("bob", 2000)


@pytest.fixture(autouse=True)
def _shipped_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timings that the controller gives to a fleet of this size."""
    monkeypatch.setattr(agents, "HEARTBEAT_S", pace.interval_s(1000))


def submit(site: Site, who: tuple[str, int], *nodes: str, **changed: object) -> SimJob:
    """A job that opted in and is fenced, with some of the GPUs of these nodes."""
    user, uid = who
    job = site.slurm.submit(
        len(nodes), comment="holdfast", user=user, uid=uid, required=nodes, **{"gpus": 2, **changed}
    )
    site.run(2)
    assert job.nodes == nodes
    on = site.machine(nodes[0])
    site.agents.state(on, "checkpoint.register", job.job_id, 0, uid=uid, path="/ckpt", detail={"fenced": True})
    return job


def steps(site: Site, job: SimJob, node: str, seconds: int) -> None:
    """The job reports from one of its nodes that it continues."""
    for _ in range(seconds):
        step = round(site.clock.elapsed_s)
        site.agents.state(site.machine(node), "progress", job.job_id, job.restarts, uid=job.uid, step=step)
        site.run(1)


def test_the_steps_of_one_users_job_keep_no_other_users_job_on_a_dead_node_for_longer_than_two_minutes() -> None:
    """It reports from its other node: whether its part on the dead one still runs is unknown to all others."""
    site = Site(16, can=BLIND)
    theirs, mine = submit(site, BOB, "n1"), submit(site, ADA, "n1", "n2")
    site.run(5)
    site.machine("n1").powered = False
    steps(site, mine, "n2", 110)
    assert site.slurm.calls == [], "for two minutes it is believed"
    assert "advances on its other nodes" in site.incident("n1").note
    steps(site, mine, "n2", 30)
    assert ("set_down", "n1") in site.slurm.calls
    assert theirs.restarts == 1


def test_they_keep_no_job_from_a_node_whose_power_is_seen_off_either() -> None:
    site = Site(16)
    theirs, mine = submit(site, BOB, "n1"), submit(site, ADA, "n1", "n2")
    site.run(5)
    site.machine("n1").powered = False
    steps(site, mine, "n2", 140)
    site.run(15)
    assert (theirs.state, theirs.restarts) == ("RUNNING", 1)


@pytest.mark.parametrize("shared", [False, True], ids=["alone there", "with another job of the same user"])
def test_where_all_jobs_are_one_users_their_steps_count_for_as_long_as_they_advance(shared: bool) -> None:
    site = Site(16, can=BLIND)
    mine = submit(site, ADA, "n1", "n2")
    if shared:
        submit(site, ADA, "n1")
    site.run(5)
    cut(site, "n1")
    steps(site, mine, "n2", 250)
    assert site.incident("n1").state is IncidentState.SUSPECTED
    assert site.slurm.calls == []
