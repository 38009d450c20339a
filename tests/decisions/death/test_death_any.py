"""Silences in any order, in failure domains of one, two and three nodes: no node that reports is drained by a verdict about its death."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.controller.timing import pace
from support.simulated import Machine, Site, agents
from support.simulated.provider import FULL, IN_PLACE
from support.simulated.site import POLICY

NODES = 6
NAMES = tuple(f"n{n}" for n in range(1, NODES + 1))
PROVIDERS = {
    "blind": replace(FULL, status=False),
    "launches beside": FULL,  # word: a test's key
    "replaces in place": IN_PLACE,
}


@pytest.fixture(scope="module", autouse=True)
def _shipped_heartbeat() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agents, "HEARTBEAT_S", pace.interval_s(NODES))
        yield


def agent_stops(machine: Machine) -> None:
    machine.agent_up = False


def is_cut_off(machine: Machine) -> None:
    machine.cut_off = True


def is_cut_off_from_all(machine: Machine) -> None:
    machine.cut_off, machine.unreachable_by = True, set(NAMES) - {machine.node}


def loses_a_peer(machine: Machine) -> None:
    machine.unreachable_by = {NAMES[(NAMES.index(machine.node) + 1) % NODES]}


def loses_power(machine: Machine) -> None:
    machine.powered = False


def returns(machine: Machine) -> None:
    machine.agent_up, machine.cut_off, machine.unreachable_by = True, False, set()


HAPPENINGS: tuple[Callable[[Machine], None], ...] = (
    agent_stops,
    is_cut_off,
    is_cut_off_from_all,
    loses_a_peer,
    loses_power,
    returns,
    returns,
)
Step = tuple[Callable[[Machine], None], str, int]
"""The events, each with its node and the seconds that pass after it."""
stories: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(st.sampled_from(HAPPENINGS), st.sampled_from(NAMES), st.sampled_from((0, 3, 9, 13, 20, 45))),
    min_size=3,
    max_size=10,
)


def racks(size: int) -> dict[str, str]:
    return {",".join(NAMES[at : at + size]): f"rack {at}" for at in range(0, NODES, size)}


def pass_time(site: Site, seconds: int) -> None:
    """Fails where a node is taken out of service although its agent has just reported."""
    for _ in range(seconds):
        before = len(site.slurm.calls)
        site.run(1)
        for verb, name in site.slurm.calls[before:]:
            if verb in ("drain", "set_down"):
                heard = max(a.last_heard for a in site.agents.registry.views()[name])
                silent_s = (site.clock.now() - heard).total_seconds()
                assert silent_s > 2.5 * pace.interval_s(NODES), (verb, name, silent_s, site.story())


@pytest.mark.sampled
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("provider", PROVIDERS)
@settings(max_examples=20)
@given(story=stories)
def test_no_node_that_reports_is_taken_from_service(size: int, provider: str, story: list[Step]) -> None:
    policy = replace(POLICY, death=replace(POLICY.death, domains=racks(size)))
    site = Site(NODES, can=PROVIDERS[provider], policy=policy)
    site.slurm.submit(2, comment="holdfast", exclusive=True)
    for happens, name, then_s in story:
        happens(site.machine(name))
        pass_time(site, then_s)
    pass_time(site, 30)


@settings(max_examples=20)
@given(story=stories)
def test_the_only_node_of_its_domain_is_never_taken_from_service_by_silence(story: list[Step]) -> None:
    """No peer can testify, and the provider does not show the power state."""
    policy = replace(POLICY, death=replace(POLICY.death, domains=racks(1)))
    site = Site(NODES, can=PROVIDERS["blind"], policy=policy)
    for happens, name, then_s in story:
        happens(site.machine(name))
        site.run(then_s)
    site.run(60)
    assert [c for c in site.slurm.calls if c[0] in ("drain", "set_down")] == []
