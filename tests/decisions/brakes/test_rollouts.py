"""Faulty roll-outs: the same finding on every node, or silence of all nodes, is one cause, and affects no healthy node."""

from __future__ import annotations

import pytest

from holdfast_checks.result import Remedy
from support.simulated import Site

MACHINE_STEPS = {"Launch", "Terminate", "Replace", "Reboot", "StopStart", "SetDown"}


def _running(site: Site, count: int) -> None:
    for _ in range(count):
        site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.run(2)


def _stopped(site: Site) -> int:
    return sum(job.restarts > 0 or job.state != "RUNNING" for job in site.slurm.jobs.values())


@pytest.mark.parametrize("apart_s", [0, 5, 45], ids=["at once", "in quick succession", "one by one"])
def test_an_agent_release_that_does_not_start_is_no_fault_of_any_node(apart_s: int) -> None:
    """Agents fall silent for good; slurmd and the jobs run on, and the kernels answer."""
    site = Site(20)
    _running(site, 20)
    for number in range(1, 21):
        site.machine(f"n{number}").agent_up = False
        site.run(apart_s, step_s=5)
    site.run(1800, step_s=10)
    assert (site.slurm.drained, _stopped(site)) == ([], 0), site.story()
    assert not [i for i in site.store.intents() if i.kind in MACHINE_STEPS]
    assert site.notices.sent, "an operator is notified"


@pytest.mark.parametrize("apart_s", [0, 20])
def test_a_driver_that_breaks_every_gpu_is_braked_after_three_nodes(apart_s: int) -> None:
    site = Site(20)
    _running(site, 20)
    for number in range(1, 21):
        site.fault(f"n{number}", check="gpu.nvml", code="unavailable", minor=None, remedy=Remedy.REBOOT)
        site.run(apart_s, step_s=5)
    site.run(120, step_s=10)
    assert len(site.slurm.drained) <= 3
    assert _stopped(site) <= 3
    assert "drains" in site.book.brakes


def test_an_agent_release_whose_check_is_wrong_on_every_node_is_braked() -> None:
    site = Site(100)
    _running(site, 100)
    for number in range(1, 101):
        site.fault(f"n{number}", check="host.slurmd", code="away", minor=None, remedy=Remedy.NONE)
    site.run(300, step_s=10)
    assert (site.slurm.drained, _stopped(site)) == ([], 0)
    assert not [i for i in site.store.intents() if i.kind in MACHINE_STEPS and i.started_at is not None]
