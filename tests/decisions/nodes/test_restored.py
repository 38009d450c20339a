"""A store restored from a backup: a finding from before the backup is no reason to act on a node that is healthy today."""

from __future__ import annotations

import copy

import pytest

from holdfast.decisions.nodes.restored import NOTE
from holdfast.model.incidents.incident import IncidentState
from holdfast.store import books
from holdfast_checks.result import Remedy
from support.simulated import MemoryStore, Site


def put_back(site: Site, snapshot: dict[str, object]) -> None:
    """As ``holdfast restore`` leaves it, with the daemons started again."""
    old = MemoryStore()
    old.__dict__.update(copy.deepcopy(snapshot))
    old._notes[books.RESTORED] = site.clock.now().isoformat()
    site.store = old
    site.agents._store = old
    site.start_controller()
    site.start_actor()
    site.operate("pause")


def snapshot_of(site: Site) -> dict[str, object]:
    return copy.deepcopy(site.store.__dict__)


@pytest.mark.parametrize("held", ["pause", "window"])
def test_a_fault_that_was_cleared_since_the_backup_hurts_nobody(held: str) -> None:
    site = Site(6)
    job = site.slurm.submit(1, comment="holdfast", exclusive=True)
    site.run(2)
    if held == "pause":
        site.operate("pause")
    else:
        site.slurm.operator_reserves("vendor", "n1", hours=1)
    site.run(3)
    machine = site.machine("n1")
    found = site.agents.find(machine, remedy=Remedy.REBOOT, sticky=True, check="gpu.lost", code="lost")
    site.run(30)
    backup = snapshot_of(site)
    site.agents.clear(machine, found.check, found.component)
    site.run(60)
    site.slurm.reservations.pop("vendor", None)
    if held == "pause":
        site.operate("resume")
    site.run(600, step_s=10)
    calls = len(site.slurm.calls)
    put_back(site, backup)
    site.run(20)
    site.operate("resume")
    site.run(1200, step_s=10)
    assert ("drain", "n1") not in site.slurm.calls[calls:]
    assert job.restarts == 0
    old = site.incident("n1")
    assert (old.state, old.note) == (IncidentState.CLOSED, NOTE)


def test_a_fault_that_lasts_is_found_again() -> None:
    site = Site(6)
    site.operate("pause")
    machine = site.machine("n1")
    site.agents.find(machine, remedy=Remedy.REBOOT, sticky=True, check="gpu.lost", code="lost")
    site.run(30)
    put_back(site, snapshot_of(site))
    site.run(20)
    assert site.incident("n1").state is IncidentState.CLOSED
    site.agents.find(machine, remedy=Remedy.REBOOT, sticky=True, check="gpu.lost", code="lost")
    site.operate("resume")
    site.run(10)
    assert ("drain", "n1") in site.slurm.calls


def test_a_node_that_was_drained_since_the_backup_stays_an_operators_question() -> None:
    site = Site(6)
    site.operate("pause")
    site.agents.find(site.machine("n1"), remedy=Remedy.REBOOT, sticky=True, check="gpu.lost", code="lost")
    site.run(30)
    backup = snapshot_of(site)
    site.operate("resume")
    site.run(5)
    assert site.slurm.nodes["n1"].drain
    put_back(site, backup)
    site.run(20)
    assert site.incident("n1").open
