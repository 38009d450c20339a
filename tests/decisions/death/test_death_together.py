"""Which silences have one cause: in a failure domain those at the same time, in the cluster those within ten minutes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.controller.timing import pace
from holdfast.model.incidents.incident import IncidentState
from support.simulated import Site, agents
from support.simulated.network import back, cut
from support.simulated.provider import FULL
from support.simulated.site import POLICY

BLIND = replace(FULL, status=False)


@pytest.fixture(autouse=True)
def _shipped_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timings that the controller gives to a fleet of this size."""
    monkeypatch.setattr(agents, "HEARTBEAT_S", pace.interval_s(1000))


def small_domains(nodes: int, size: int) -> Site:
    """Racks of this many nodes each, and a provider that does not show the power state."""
    racks = {f"n[{n}-{n + size - 1}]": f"rack {n}" for n in range(1, nodes, size)}
    return Site(nodes, can=BLIND, policy=replace(POLICY, death=replace(POLICY.death, domains=racks)))


def flap(site: Site, name: str, silent_s: int = 40) -> None:
    """The agent is away for a while; its machine is healthy."""
    site.machine(name).agent_up = False
    site.run(silent_s)
    site.machine(name).agent_up = True
    site.run(15)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_an_agent_that_flapped_does_not_keep_the_next_death_from_being_found(size: int) -> None:
    site = small_domains(24, size)
    for name in ("n2", "n3")[: size - 1]:
        flap(site, name)
    site.machine("n1").powered = False
    site.run(60)
    incident = site.incident("n1")
    assert incident.state is not IncidentState.SUSPECTED, incident.note
    assert site.slurm.nodes["n1"].drain


def test_two_of_three_that_are_silent_at_once_are_one_cause() -> None:
    site = small_domains(24, 3)
    for name in ("n1", "n2"):
        site.machine(name).powered = False
    site.run(100)
    assert {site.incident(n).state for n in ("n1", "n2")} == {IncidentState.SUSPECTED}
    assert "one cause" in site.incident("n1").note
    assert not [n.name for n in site.slurm.nodes.values() if n.drain or n.down]


def test_the_last_of_three_whose_cut_ends_is_not_judged_alone() -> None:
    """It was silent together with those that report again."""
    site = small_domains(24, 3)
    cut(site, "n1", "n2")
    site.run(60)
    back(site, "n2")
    site.machine("n1").unreachable_by |= {"n2"}
    site.run(300, step_s=2)
    assert site.incident("n1").state is IncidentState.SUSPECTED, site.story()
    assert not site.slurm.nodes["n1"].drain


def test_silences_that_follow_on_each_other_without_a_gap_are_one_stretch() -> None:
    site = small_domains(24, 4)
    for name, more in (("n2", 20), ("n3", 32)):  # each begins before the one before it has ended
        cut(site, name)
        site.run(more)
    back(site, "n2")
    site.run(15)
    site.machine("n1").powered = False
    site.run(5)
    back(site, "n3")
    site.run(60)
    assert site.incident("n1").state is IncidentState.SUSPECTED
    assert "one cause" in site.incident("n1").note


def test_more_nodes_of_the_cluster_within_ten_minutes_are_one_cause_also_one_after_another() -> None:
    """Cables that are moved one by one: what peers report of each is true, and no machine has a fault."""
    site = small_domains(24, 8)
    for name in ("n2", "n9", "n10"):
        flap(site, name)
    site.machine("n17").powered = False
    site.run(60)
    assert site.incident("n17").state is IncidentState.SUSPECTED
    assert site.incident("n17").note.startswith("1 node of the cluster does not report")
    assert [s for s in site.notices.sent if "of the cluster" in s] == ["1 node of the cluster does not report"]


def test_an_old_death_makes_no_cause_of_a_flap_and_a_new_one() -> None:
    site = small_domains(24, 3)
    site.machine("n3").powered = False
    site.run(700, step_s=5)
    assert site.incident("n3").dead
    flap(site, "n2")
    site.machine("n1").powered = False
    site.run(60)
    assert site.slurm.nodes["n1"].drain, site.incident("n1").note


def test_a_group_of_which_all_report_again_is_not_told_of() -> None:
    site = small_domains(24, 3)
    site.run(5)
    for name in ("n1", "n2"):
        site.machine(name).agent_up = False
    site.run(40)
    for name in ("n1", "n2"):
        site.machine(name).agent_up = True
    site.run(20)
    site.machine("n20").agent_up = False
    site.run(60)
    assert [s for s in site.notices.sent if "rack 1 do" in s] == []
