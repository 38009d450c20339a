"""A cut of a few nodes, below every limit on deaths: its nodes live, and nothing is done to them however long it lasts.

The shipped defaults, in ``act``."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from holdfast.controller.timing import pace
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.machine import Instance, ProviderCan
from support.simulated import Site, agents
from support.simulated.network import back, cut
from support.simulated.provider import FULL, IN_PLACE

BLIND = replace(FULL, status=False)
BLIND_IN_PLACE = replace(IN_PLACE, status=False)


@pytest.fixture(autouse=True)
def _shipped_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timings that the controller gives to a fleet of this size."""
    monkeypatch.setattr(agents, "HEARTBEAT_S", pace.interval_s(1000))


def fenced_job(site: Site, nodes: int = 1) -> int:
    """One that opted in, and whose checkpoint library refuses an older run's writes. Its id."""
    job = site.slurm.submit(nodes, comment="holdfast", exclusive=True)
    site.agents.state(
        site.machine(job.nodes[0]), "checkpoint.register", job.job_id, 0, path="/ckpt", detail={"fenced": True}
    )
    site.run(2)
    return job.job_id


def machines_touched(site: Site) -> dict[str, list[str]]:
    """Machines that were ended, rebooted or launched."""
    found = {
        "terminated": sorted(site.provider.terminated),
        "cycled": sorted(site.provider.cycled.values()),
        "launched": sorted(site.provider.tokens),
        "rebooted": sorted(n for verb, n in site.slurm.calls if verb == "reboot"),
    }
    return {what: those for what, those in found.items() if those}


@pytest.mark.parametrize(
    ("nodes", "away", "can"),
    [
        *itertools.product([16], [2, 3], [FULL, BLIND, BLIND_IN_PLACE]),
        (100, 3, FULL),
        (100, 3, BLIND),
        (400, 4, BLIND),
    ],
)
def test_a_cut_of_a_few_nodes_for_25_minutes_touches_no_machine(nodes: int, away: int, can: ProviderCan) -> None:
    site = Site(nodes, can=can)
    for _ in range(6):
        fenced_job(site)
    names = [f"n{n}" for n in range(3, 3 + away)]
    cut(site, *names)
    site.run(280, step_s=2)
    assert [c for c in site.slurm.calls if c[0] in ("set_down", "drain", "requeue")] == []
    site.run(1220, step_s=20)
    assert machines_touched(site) == {}
    assert [c for c in site.slurm.calls if c[0] in ("set_down", "drain")] == []
    assert [s for s in site.notices.sent if s.endswith("do not report")] == [
        f"{away} nodes of 10.0.0.0/24 do not report"
    ]
    back(site, *names)
    site.run(200, step_s=5)
    assert machines_touched(site) == {}
    assert [(i.node, i.state) for i in site.store.incidents(only_open=True)] == []
    assert [c for c in site.slurm.calls if c[0] in ("set_down", "drain")] == []


def test_a_node_whose_companion_of_the_cut_is_back_is_left_alone_for_as_long_as_it_is_away() -> None:
    """The other node reports again, which proves that no machine was the cause."""
    site = Site(16, can=BLIND)
    cut(site, "n3", "n4")
    site.run(600, step_s=5)
    back(site, "n4")
    site.run(3 * 3600, step_s=20)
    assert machines_touched(site) == {}
    assert site.incident("n3").state is IncidentState.SUSPECTED
    assert "one cause" in site.incident("n3").note
    assert [s for s in site.notices.sent if s == "1 node of 10.0.0.0/24 does not report"]


def test_cables_that_are_pulled_minutes_apart_end_no_machine() -> None:
    """Each is found dead by its peers, which is correct; but two within ten minutes may have one cause."""
    site = Site(16, can=BLIND)
    cut(site, "n3")
    site.run(240, step_s=2)
    cut(site, "n9")
    site.run(1500, step_s=10)
    assert machines_touched(site) == {}
    back(site, "n3")
    site.run(1500, step_s=10)
    assert machines_touched(site) == {}
    assert [s for s in site.notices.sent if "of 10.0.0.0/24 do" in s]
    back(site, "n9")
    site.run(400, step_s=5)
    assert not [n.name for n in site.slurm.nodes.values() if n.drain or n.down], site.story()


@pytest.mark.parametrize("can", [FULL, IN_PLACE], ids=["launches beside", "in place"])  # word: a test's id
def test_two_dead_nodes_whose_provider_says_off_heal_at_once(can: ProviderCan) -> None:
    site = Site(16, can=can, spares=("n15", "n16"))
    job = site.slurm.jobs[fenced_job(site, nodes=2)]
    for name in job.nodes:
        site.machine(name).powered = False
    site.run(25)
    assert (job.state, job.restarts) == ("RUNNING", 1)
    site.run(3600, step_s=10)
    assert site.store.incidents(only_open=True) == (), site.story()


def test_two_dead_nodes_of_which_no_one_shows_the_power_wait_and_slurm_recovers_their_job() -> None:
    site = Site(16, can=BLIND)
    job = site.slurm.jobs[fenced_job(site, nodes=2)]
    for name in job.nodes:
        site.machine(name).powered = False
    site.run(290)
    assert (job.state, job.restarts) == ("RUNNING", 0)
    site.run(160)
    assert (job.state, job.restarts) == ("RUNNING", 1), "Slurm's own DOWN, at SlurmdTimeout"
    site.run(3600, step_s=10)
    assert machines_touched(site) == {}
    assert len([s for s in site.notices.sent if s.endswith("do not report")]) == 2, "once in each hour"


def test_a_dead_node_is_judged_while_its_companion_is_seen_without_power() -> None:
    """A node that is off is no cut: the other one is alone."""
    site = Site(16, can=FULL)
    plain = site.provider.instance

    def shown(instance_id: str) -> Instance:
        found = plain(instance_id)
        return replace(found, state="running", healthy=None) if instance_id == "i-0003" else found

    site.provider.instance = shown  # type: ignore[method-assign]
    for name in ("n3", "n4"):
        site.machine(name).powered = False
    site.run(60)
    assert site.incident("n3").dead
    assert site.incident("n4").dead


@pytest.mark.parametrize("returns_after_s", [12, 60, 600])
def test_an_agent_that_is_away_while_its_kernel_answers_keeps_no_dead_node_from_being_found(
    returns_after_s: int,
) -> None:
    """An agent's restart is no cut of the network."""
    site = Site(16, can=BLIND, spares=("n16",))
    job = site.slurm.jobs[fenced_job(site)]
    site.machine("n9").agent_up = False
    site.machine(job.nodes[0]).powered = False
    site.run(min(returns_after_s, 20))
    site.machine("n9").agent_up = returns_after_s <= 20
    site.run(25 - min(returns_after_s, 20))
    assert (job.state, job.restarts) == ("RUNNING", 1)
    site.run(max(0, returns_after_s - 25), step_s=5)
    site.machine("n9").agent_up = True
    site.run(3600, step_s=10)
    assert site.store.incidents(only_open=True) == (), site.story()


def test_one_dead_node_alone_runs_its_job_elsewhere_as_fast_as_before() -> None:
    site = Site(16, can=BLIND, spares=("n16",))
    job = site.slurm.jobs[fenced_job(site)]
    site.machine(job.nodes[0]).powered = False
    site.run(19)
    assert (job.state, job.restarts) == ("RUNNING", 1)
    site.run(3600, step_s=10)
    assert site.store.incidents(only_open=True) == (), site.story()
