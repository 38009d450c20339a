"""An operator closes an incident whose fault is a state that lasts: a repeated report of it is no news."""

from __future__ import annotations

from typing import Any

from holdfast.model.incidents.incident import IncidentState
from holdfast_checks.result import Remedy, Severity
from support.simulated import Site

LOST: dict[str, Any] = {"check": "gpu.count", "code": "lost", "sticky": True, "remedy": Remedy.REBOOT}


def closed_by_hand() -> Site:
    """``holdfast incident close`` while no action was taken yet: a false alarm."""
    site = Site(4)
    site.operate("pause")
    site.fault("n1", **LOST)
    site.run(5)
    site.operate("close", site.incident("n1").id)
    site.operate("resume")
    site.run(5)
    return site


def test_what_its_agent_repeats_drains_nothing() -> None:
    site = closed_by_hand()
    for _ in range(3):
        site.run(600, step_s=10)
        site.fault("n1", **LOST)
    site.run(10)
    assert not site.slurm.nodes["n1"].drain
    assert [i.state for i in site.store.incidents()] == [IncidentState.CLOSED]


def test_once_it_was_cleared_it_is_news() -> None:
    site = closed_by_hand()
    machine = site.machine("n1")
    site.agents.clear(machine, "gpu.count", machine.gpu_uuids[3])
    site.run(60)
    site.fault("n1", **LOST)
    site.run(10)
    assert site.slurm.nodes["n1"].drain


def test_a_worse_judgement_is_news() -> None:
    site = Site(4)
    site.operate("pause")
    site.fault("n1", **LOST | {"severity": Severity.DEGRADED})
    site.run(5)
    site.operate("close", site.incident("n1").id)
    site.operate("resume")
    site.fault("n1", **LOST)
    site.run(10)
    assert site.slurm.nodes["n1"].drain


def test_an_event_that_comes_again_is_news() -> None:
    site = Site(4)
    site.operate("pause")
    site.fault("n1")
    site.run(5)
    site.operate("close", site.incident("n1").id)
    site.operate("resume")
    site.run(5)
    assert not site.slurm.nodes["n1"].drain
    site.fault("n1")
    site.run(10)
    assert site.slurm.nodes["n1"].drain
