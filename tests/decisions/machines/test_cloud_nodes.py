"""A cloud cluster defines hundreds of nodes of which a few run: brakes and budgets take their shares of those that run."""

from __future__ import annotations

import pytest

from holdfast.decisions.common import slurm_view
from holdfast.model.book import BrakeKind
from holdfast_checks.result import Remedy
from support.simulated import Site

LIVE = 8


def cloud(defined: int) -> Site:
    """Eight nodes run, the others are powered off by Slurm and never had an agent."""
    site = Site(defined, warm=False)
    for number in range(LIVE + 1, defined + 1):
        site.slurm.nodes[f"n{number}"].power = "POWERED_DOWN"
        machine = site.machine(f"n{number}")
        machine.powered = machine.agent_up = False
    site.run(40, step_s=5)
    return site


def fleet(site: Site) -> frozenset[str]:
    assert site.loop.world is not None
    return slurm_view.fleet(site.loop.world)


def test_the_fleet_is_what_runs_and_has_an_agent() -> None:
    site = cloud(20)
    assert len(site.slurm.nodes) == 20
    assert fleet(site) == {f"n{n}" for n in range(1, LIVE + 1)}


def test_a_node_that_power_saving_switches_off_leaves_the_fleet() -> None:
    site = cloud(20)
    site.slurm.nodes["n1"].power = "POWERING_DOWN"
    site.run(3)
    assert len(fleet(site)) == LIVE - 1


@pytest.mark.loop
@pytest.mark.parametrize("defined", [LIVE, 400])
def test_a_driver_that_breaks_all_of_them(defined: int) -> None:
    site = cloud(defined)
    jobs = [site.slurm.submit(1, comment="holdfast", exclusive=True) for _ in range(LIVE)]
    site.run(2)
    for number in range(1, LIVE + 1):
        site.fault(f"n{number}", check="gpu.nvml", code="unavailable", minor=None, remedy=Remedy.REBOOT)
    site.run(60, step_s=10)
    assert len(site.slurm.drained) <= 3
    assert sum(job.restarts > 0 for job in jobs) <= 3
    assert site.book.brakes[BrakeKind.DRAINS].released_at is None


@pytest.mark.loop
@pytest.mark.parametrize("defined", [LIVE, 40])
def test_no_more_than_a_quarter_of_them_is_ended_in_a_day(defined: int) -> None:
    site = cloud(defined)
    for number in range(1, 6):
        site.fault(f"n{number}")
        site.run(4500, step_s=60)
    assert len(site.provider.terminated) == 2
