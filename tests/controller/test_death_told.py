"""A silent node of which nothing is concluded is no secret: an operator is told, with what is known, once in each hour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from holdfast.model.incident import IncidentState
from holdfast.model.report import OrderOutcome
from support.simulated import Machine, Site
from support.simulated.agents import SimAgents
from support.simulated.provider import FULL
from support.simulated.site import POLICY

BLIND = replace(FULL, status=False)


def told(site: Site, words: str = "does not report") -> list[str]:
    return [subject for subject in site.notices.sent if words in subject]


def body(site: Site, words: str = "does not report") -> str:
    """Of the newest message with these words in its subject."""
    return next(b for s, b in reversed(site.notices.bodies) if words in s)


@pytest.fixture
def old_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents of before: they do not say whether they had reached the node before."""
    plain = SimAgents._probe

    def without(self: SimAgents, machine: Machine, key: str, args: Mapping[str, Any]) -> OrderOutcome:
        said = plain(self, machine, key, args)
        return replace(said, detail={k: v for k, v in said.detail.items() if k != "reached_before_s"})

    monkeypatch.setattr(SimAgents, "_probe", without)


def test_a_hung_machine_whose_kernel_answers_is_told_of_with_what_is_known() -> None:
    site = Site(16)
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    site.run(5)
    name = job.nodes[0]
    site.machine(name).agent_up = False
    site.run(280)
    assert told(site) == []
    site.run(40)
    assert told(site) == [f"{name} does not report"]
    known = body(site)
    assert "its kernel answers the head node on port 6818" in known
    assert "Slurm shows it responding" in known
    assert "its provider shows it running" in known
    assert f"job {job.job_id} is on it" in known
    assert site.incident(name).state is IncidentState.SUSPECTED


def test_it_is_told_again_once_in_each_hour_for_as_long_as_it_lasts() -> None:
    site = Site(16, can=BLIND)
    site.machine("n3").agent_up = False
    site.run(3500, step_s=10)
    assert len(told(site)) == 1
    site.run(3600, step_s=10)
    assert len(told(site)) == 2
    site.run(3600, step_s=10)
    assert len(told(site)) == 3
    site.machine("n3").agent_up = True
    site.run(4000, step_s=10)
    assert len(told(site)) == 3


def test_neighbours_whose_agents_are_old_bear_no_witness_and_an_operator_is_told(old_agents: None) -> None:
    site = Site(16, can=BLIND)
    site.machine("n3").powered = False
    site.run(320)
    assert site.incident("n3").state is IncidentState.SUSPECTED
    assert told(site) == ["n3 does not report"]
    assert "the head node does not reach its port 6818" in body(site)
    assert "cannot tell" in body(site)


def test_a_node_that_is_judged_in_time_is_not_told_of() -> None:
    site = Site(16, can=BLIND)
    site.machine("n3").powered = False
    site.run(400)
    assert site.incident("n3").dead
    assert told(site) == []


def test_a_node_without_a_witness_is_told_of_after_a_minute_and_again_in_each_hour() -> None:
    policy = replace(POLICY, death=replace(POLICY.death, domains={"n[1-2,4-16]": "a", "n3": "alone"}))
    site = Site(16, can=BLIND, policy=policy)
    site.machine("n3").powered = False
    site.run(120)
    assert told(site) == ["n3 does not report"]
    assert "the only node of its failure domain" in body(site)
    site.run(3300, step_s=10)
    assert len(told(site)) == 1
    site.run(3600, step_s=10)
    assert len(told(site)) == 2


def test_many_nodes_with_one_cause_are_told_of_again_in_each_hour_and_not_as_each_one_returns() -> None:
    site = Site(100, can=BLIND)
    away = [f"n{n}" for n in range(3, 13)]
    for number, name in enumerate(away):
        site.machine(name).agent_up = False
        site.run(20 if number < 4 else 1)
    site.run(300, step_s=5)
    assert len(told(site, "do not report")) == 1
    for name in away[:4]:
        site.machine(name).agent_up = True
        site.run(700, step_s=10)
    assert len(told(site, "do not report")) == 1, "the first of them is another one with each that returns"
    site.run(3600, step_s=10)
    assert len(told(site, "do not report")) == 2


def test_slurmctld_that_stays_away_is_told_of_again_in_each_hour() -> None:
    site = Site(4, can=BLIND)
    site.slurm.away = True
    site.run(3500, step_s=10)
    assert len(told(site, "slurmctld")) == 1
    site.run(3600, step_s=10)
    assert len(told(site, "slurmctld")) == 2
