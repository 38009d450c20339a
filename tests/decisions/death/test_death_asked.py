"""Which peers are asked about a silent node: those whose answers count, and others where they do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from holdfast.controller.observing.neighbours import FIRST_AT_ONCE, FIRST_PER_S, NeighbourLists
from holdfast.decisions.death import domains
from holdfast.model.actions.action import SendOrder, Verb
from holdfast.model.agents.report import OrderOutcome
from holdfast.model.incidents.incident import IncidentState
from support.simulated import Machine, Site
from support.simulated.agents import SimAgents
from support.simulated.provider import FULL

BLIND = replace(FULL, status=False)
WATCHERS = domains.watchers(tuple(sorted(f"n{n}" for n in range(1, 25))), "n3")


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """These nodes have an agent of an earlier release, which does not report whether it had reached the node."""
    names: set[str] = set()
    plain = SimAgents._probe

    def probe(self: SimAgents, machine: Machine, key: str, args: Mapping[str, Any]) -> OrderOutcome:
        said = plain(self, machine, key, args)
        detail = {k: v for k, v in said.detail.items() if k != "reached_before_s" or machine.node not in names}
        return replace(said, detail=detail)

    monkeypatch.setattr(SimAgents, "_probe", probe)
    return lambda *old_ones: names.update(old_ones)


def asked(site: Site) -> list[str]:
    orders = [i.action for i in site.store.intents() if isinstance(i.action, SendOrder)]
    return [a.node for a in orders if a.verb is Verb.PROBE_PEER]


def test_neighbours_that_cannot_bear_witness_give_way_to_those_that_can(old: Callable[..., None]) -> None:
    site = Site(24, can=BLIND)
    old(*WATCHERS[:2])
    site.machine("n3").powered = False
    site.run(60)
    assert site.incident("n3").dead, (site.incident("n3").note, asked(site))
    assert all(f"peer {name}" in site.incident("n3").headline for name in WATCHERS[2:])


def test_agents_are_told_which_node_is_meant_and_older_ones_where_it_is() -> None:
    site = Site(24, can=BLIND)
    site.machine("n3").powered = False
    site.run(60)
    orders = [i.action for i in site.store.intents() if isinstance(i.action, SendOrder)]
    told = [a.args for a in orders if a.verb is Verb.PROBE_PEER]
    assert told
    for args in told:
        for each in (args, args["control"]):
            node = site.slurm.view().nodes[each["node"]]
            assert (each["address"], each["port"]) == (node.address, node.port)
        assert args["node"] == "n3"
    neighbours = NeighbourLists(lambda: site.loop.world, site.clock).of("n4")
    assert "n3" in {each.name for each in neighbours}


def test_agents_that_start_together_are_told_their_neighbours_by_and_by() -> None:
    """Each asks slurmctld where these are; a restart of an agent is not seen, so one that has been asked waits for its turn, too."""
    site = Site(100, can=BLIND)
    site.run(5)
    neighbours = NeighbourLists(lambda: site.loop.world, site.clock)
    names = [f"n{n}" for n in range(1, 101)]
    assert [name for name in names if neighbours.of(name)] == names[:FIRST_AT_ONCE]
    assert not any(neighbours.of(name) for name in names)
    told = set(names[:FIRST_AT_ONCE])
    for second in range(1, 41):
        site.run(1)
        now = {name for name in names if neighbours.of(name)}
        assert len(now) <= (FIRST_PER_S + 1 if second < 3 else FIRST_AT_ONCE)
        assert second > 11 or not now & told  # 100 nodes: each again after 12.5 s at the earliest
        told |= now
    assert told == set(names)


def test_one_that_can_and_one_that_cannot(old: Callable[..., None]) -> None:
    site = Site(24, can=BLIND)
    old(WATCHERS[0], WATCHERS[2])
    site.machine("n3").powered = False
    site.run(60)
    assert site.incident("n3").dead


def test_where_no_neighbour_can_others_are_asked_in_turn_and_few_at_a_time(old: Callable[..., None]) -> None:
    """A peer that reaches it is a sign of life, whichever peer it is."""
    site = Site(24, can=BLIND)
    old(*site.slurm.nodes)
    site.machine("n3").powered = False
    site.run(300)
    assert site.incident("n3").state is IncidentState.SUSPECTED
    assert set(WATCHERS) <= set(asked(site))
    assert len(set(asked(site))) > 16, "not the same ones for ever"
    assert len(asked(site)) <= 4 * 6 + 2 * 15, "four neighbours a minute, two others each 20 s"


def test_the_one_that_reaches_it_is_found(old: Callable[..., None]) -> None:
    site = Site(24, can=BLIND)
    old(*site.slurm.nodes)
    machine = site.machine("n3")
    machine.cut_off, machine.unreachable_by = True, set(site.slurm.nodes) - {"n3", "n20"}
    site.run(400)
    assert "n20" in asked(site)
    assert site.incident("n3").state is IncidentState.SUSPECTED


def test_those_that_say_something_are_asked_again_and_no_others() -> None:
    site = Site(24, can=BLIND)
    machine = site.machine("n3")
    machine.cut_off = True
    site.run(200)
    assert set(asked(site)) == set(WATCHERS[:2])
