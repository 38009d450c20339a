"""A hold keeps nodes for its one job: its owner cannot use it to get another job past other users' reservations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.model.actions.action import HoldNodes, IntentState, TellOwner
from support.simulated.site import NO_BUDGET, POLICY, Site


@pytest.mark.parametrize("how", ["holds the job", "submits another"])
def test_a_hold_that_its_owner_uses_otherwise_is_dropped(how: str) -> None:
    """A user who held their recovered job kept the hold for ten minutes, and started other jobs on reserved nodes and spares."""
    site = Site(4)
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    site.slurm.submit(2, exclusive=True)
    site.run(5)
    bad = job.nodes[0]
    site.fault(bad)
    for _ in range(60):
        site.run(1)
        if job.state == "PENDING" and site.slurm.reservations:
            break
    (hold,) = site.slurm.reservations
    if how == "holds the job":
        job.held = True
    else:
        site.slurm.submit(1, exclusive=True, reservation=hold, held=True)
    site.run(30)
    assert hold not in site.slurm.reservations
    assert job.state == "PENDING"


def test_a_hold_stays_while_its_job_waits() -> None:
    site = Site(4)
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    site.slurm.submit(2, exclusive=True)
    site.run(5)
    site.fault(job.nodes[0])
    site.run(60)
    assert job.state == "PENDING"
    assert len(site.slurm.reservations) == 1


def held(site: Site, nodes: int = 2, **changed: object) -> tuple[str, str]:
    """A recovered job that waits in its hold for a node: the hold's name and the node with the fault."""
    job = site.slurm.submit(nodes, comment="holdfast", exclusive=True, **changed)
    site.run(5)
    bad = job.nodes[0]
    site.fault(bad)
    for _ in range(60):
        site.run(1)
        if job.state == "PENDING" and site.slurm.reservations:
            break
    (hold,) = (name for name, r in site.slurm.reservations.items() if "FLEX" in r.flags)
    return hold, bad


def test_a_job_in_a_hold_starts_on_nothing_that_others_keep() -> None:
    """The hold had FLEX and OVERLAP: a job of its owner that named it started on spares and on reserved nodes."""
    site = Site(5)
    site.slurm.operator_reserves("course", "n5", flags=frozenset())
    site.slurm.submit(2, exclusive=True)
    hold, _ = held(site)
    taker = site.slurm.submit(1, exclusive=True, reservation=hold, excluded=site.slurm.reservations[hold].nodes)
    site.slurm.schedule()
    assert taker.state == "PENDING"
    site.run(60)
    assert taker.nodes != ("n5",)


def test_two_jobs_that_share_nodes_have_no_hold_over_each_other() -> None:
    """Slurm makes no hold that overlaps another, and would start neither job on the nodes that both keep."""
    site = Site(5, policy=NO_BUDGET)
    jobs = [site.slurm.submit(2, comment="holdfast", gpus=4, user=f"u{n}", uid=2000 + n) for n in range(2)]
    site.run(5)
    assert jobs[0].nodes == jobs[1].nodes
    site.fault(jobs[0].nodes[0], check="host.disk", code="dead", gpu_minor=None)
    site.run(60)
    assert [(j.state, j.restarts) for j in jobs] == [("RUNNING", 1)] * 2, site.story()
    failed = [i for i in site.store.intents() if isinstance(i.action, HoldNodes) and i.state is not IntentState.DONE]
    assert failed == []


@pytest.mark.parametrize("most", [0, 2])
def test_a_user_gets_so_many_holds_an_hour(most: int) -> None:
    site = Site(12, policy=replace(NO_BUDGET, job=replace(NO_BUDGET.job, holds_per_user_60min=most)))
    jobs = [site.slurm.submit(2, comment="holdfast", exclusive=True) for _ in range(3)]
    site.run(5)
    for job in jobs:
        site.fault(job.nodes[0])
        site.run(30)
    assert [(j.state, j.restarts) for j in jobs] == [("RUNNING", 1)] * 3, site.story()
    intents = site.store.intents()
    assert sum(isinstance(i.action, HoldNodes) for i in intents) == most
    told = [i.action.text for i in intents if isinstance(i.action, TellOwner) and "without a hold" in i.action.text]
    assert len(told) == 3 - most


def test_the_shipped_limit_of_holds_is_above_what_a_bad_day_needs() -> None:
    assert POLICY.job.holds_per_user_60min == 20
