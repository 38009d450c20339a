"""How agents' heartbeats (lost, slow or claimed) affect the verdict about another node."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from holdfast.controller.observing.agents import AgentRegistry, Hello
from holdfast.controller.timing import pace
from holdfast.model.incidents.incident import IncidentState
from support.simulated import EPOCH, Site, agents
from support.simulated.network import back, cut
from support.simulated.provider import FULL
from support.simulated.site import POLICY

BLIND = replace(FULL, status=False)


@pytest.fixture(autouse=True)
def _shipped_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timings that the controller gives to a fleet of this size."""
    monkeypatch.setattr(agents, "HEARTBEAT_S", pace.interval_s(1000))


def fenced_job(site: Site) -> str:
    """The node of a job that opted in and is fenced: set DOWN once it is found dead."""
    job = site.slurm.submit(1, comment="holdfast", exclusive=True)
    detail = {"fenced": True}
    site.agents.state(site.machine(job.nodes[0]), "checkpoint.register", job.job_id, 0, path="/ckpt", detail=detail)
    site.run(2)
    return job.nodes[0]


def done_to(site: Site, *names: str) -> list[tuple[str, str]]:
    return [c for c in site.slurm.calls if c[0] in ("set_down", "drain") and (not names or c[1] in names)]


def in_step(site: Site, name: str) -> None:
    """Run up to the second in which this agent's heartbeat was received."""
    while site.machine(name).next_beat_s - site.clock.elapsed_s < 4:
        site.run(1)


@pytest.mark.parametrize(
    ("claimed_s", "gaps_s", "judged_by_s"),
    [
        (4.0, (4.0, 4.01), 4.0),
        (4.0, (4.0, 8.0), 4.0),
        (4.0, (8.0, 4.0), 4.0),
        (0.05, (4.0,), 0.05),
        (0.05, (4.0, 4.0), 4.0),
        (0.05, (30.0, 60.0), 10.0),
        (60.0, (4.0, 4.0), 60.0),
    ],
)
def test_the_interval_by_which_an_agent_is_judged(
    claimed_s: float, gaps_s: tuple[float, ...], judged_by_s: float
) -> None:
    registry = AgentRegistry()
    for at_s in itertools.accumulate(gaps_s, initial=0.0):
        registry.heard(Hello("n1", "i-1", "boot", interval_s=claimed_s), EPOCH, at_s)
        registry.heard(Hello("n1", "i-1", "boot"), EPOCH, at_s + 0.01)  # a report does not contain it
    assert registry.views()["n1"][0].heartbeat_interval_s == judged_by_s


@pytest.mark.parametrize("apart_s", [0, 1, 2, 3])
def test_a_heartbeat_that_is_lost_right_before_a_cut_makes_no_node_alone(apart_s: int) -> None:
    site = Site(16, can=BLIND)
    for _ in range(4):
        fenced_job(site)
    site.machine("n4").next_beat_s += apart_s
    in_step(site, "n3")
    site.machine("n3").agent_up = False
    site.run(3 + apart_s)
    site.machine("n3").agent_up = True
    cut(site, "n3", "n4")
    site.run(60)
    assert done_to(site) == []
    back(site)
    site.run(60)
    assert done_to(site) == []
    assert site.store.incidents(only_open=True) == ()


@pytest.mark.parametrize("after_s", range(0, 10, 2))
def test_a_cut_of_nodes_with_different_intervals_makes_none_of_them_alone(after_s: int) -> None:
    """Agents of the release before send a heartbeat each 10 s."""
    site = Site(16, can=BLIND)
    for number in range(1, 17, 2):
        site.machine(f"n{number}").heartbeat_s = 10.0
    for _ in range(4):
        fenced_job(site)
    site.run(after_s)
    cut(site, "n3", "n4")
    site.run(60)
    assert done_to(site) == []


def test_one_agent_that_claims_a_slow_interval_delays_the_verdict_about_no_other_node() -> None:
    site = Site(16, can=BLIND)
    site.machine("n9").heartbeat_s = 60.0
    name = fenced_job(site)
    in_step(site, name)
    site.machine(name).powered = False
    site.run(16)
    assert done_to(site) == [("set_down", name)]


@pytest.mark.parametrize("real_s", [10.0, 25.0])
def test_one_agent_that_is_slower_than_it_says_delays_the_verdict_by_twenty_seconds_at_most(real_s: float) -> None:
    site = Site(16, can=BLIND)
    site.machine("n9").heartbeat_s, site.machine("n9").claims_interval_s = real_s, 10.0
    name = fenced_job(site)
    in_step(site, name)
    site.machine(name).powered = False
    site.run(35)
    assert done_to(site) == [("set_down", name)]


@pytest.mark.parametrize("claimed_s", [0.05, 0.5, 60.0])
def test_an_interval_that_an_agent_does_not_keep_keeps_no_dead_neighbour_from_being_drained(claimed_s: float) -> None:
    """A failure domain of three, and no source of their power state."""
    racks = {f"n[{n}-{n + 2}]": f"rack {n}" for n in range(1, 24, 3)}
    site = Site(24, can=BLIND, policy=replace(POLICY, death=replace(POLICY.death, domains=racks)))
    site.machine("n2").claims_interval_s = claimed_s
    site.run(20)
    site.machine("n1").powered = False
    site.run(30)
    assert site.incident("n1").dead, site.incident("n1").note
    assert done_to(site) == [("drain", "n1")]
    assert site.store.incidents(node="n2") == (), "it reports"


def test_an_agent_that_comes_and_goes_keeps_no_dead_neighbour_from_being_drained() -> None:
    """Its kernel answers the head node: the network is not cut."""
    racks = {f"n[{n}-{n + 2}]": f"rack {n}" for n in range(1, 24, 3)}
    site = Site(24, can=BLIND, policy=replace(POLICY, death=replace(POLICY.death, domains=racks)))
    liar = site.machine("n2")
    for second in range(90):
        if second == 30:
            site.machine("n1").powered = False
        liar.agent_up = second % 13 == 0
        site.run(1)
    assert site.incident("n1").state is not IncidentState.SUSPECTED, site.incident("n1").note
    assert done_to(site) == [("drain", "n1")]
