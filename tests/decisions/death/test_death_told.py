"""A silent node without a verdict: an operator is notified, with what is known, once an hour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from holdfast.model.agents.report import OrderOutcome
from holdfast.model.incidents.incident import IncidentState
from support.simulated import Machine, Site
from support.simulated.agents import SimAgents
from support.simulated.provider import FULL
from support.simulated.site import POLICY
from support.simulated.slurm import SimJob

BLIND = replace(FULL, status=False)


def told(site: Site, words: str = "does not report") -> list[str]:
    return [subject for subject in site.notices.sent if words in subject]


def body(site: Site, words: str = "does not report") -> str:
    """Body of the newest message with these words in its subject."""
    return next(b for s, b in reversed(site.notices.bodies) if words in s)


@pytest.fixture
def old_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents of an earlier release: they do not report whether they had reached the node before."""
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
    assert "have no verdict" in body(site)


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


# A node that cannot be fenced


def _cut_off(*, sees_power: bool = False, provider: bool = True) -> tuple[Site, str, SimJob]:
    """The job's first node is cut off and trains on; no checkpoint library refuses its writes."""
    site = Site(6, can=FULL if provider else BLIND)
    site.provider.sees_power = sees_power
    job = site.slurm.submit(2, comment="holdfast", exclusive=True)
    site.run(5)
    name, other = job.nodes
    site.agents.state(site.machine(other), "progress", job.job_id, 0, step=7)
    site.machine(name).cut_off = True
    site.machine(name).unreachable_by = {f"n{n}" for n in range(1, 7)}
    return site, name, job


def test_the_page_of_a_node_that_cannot_be_fenced_says_what_is_known_and_calls_it_dead_only_as_a_verdict() -> None:
    site, name, job = _cut_off()
    site.run(90)
    assert site.incident(name).dead
    assert told(site, "cannot be fenced") == [f"{name} does not answer and cannot be fenced: job {job.job_id} waits"]
    text = body(site, "cannot be fenced")
    assert "the head node does not reach its port 6818 (12:0" in text
    assert "not reached from its peers" in text
    assert "its provider shows it running, its checks passing (12:0" in text
    assert f"job {job.job_id} is on it, newest step of its other nodes 12:00:3" in text
    assert "Its provider shows it running: nothing says that its power is off. Check the machine itself" in text
    assert [line for line in text.splitlines() if "dead" in line] == [
        line for line in text.splitlines() if "Verdict: dead" in line
    ]
    assert "Otherwise Slurm sets it DOWN once slurmctld has had no answer from it for SlurmdTimeout (300 s)." in text


def test_without_a_provider_the_page_says_that_no_one_can_be_asked_about_the_power() -> None:
    site, _, _ = _cut_off(provider=False)
    site.slurm.slurmd_timeout_s = 0
    site.read_background()
    site.run(90)
    text = body(site, "cannot be fenced")
    assert "no provider can be asked whether its power is off" in text
    assert "SlurmdTimeout is 0, so Slurm never sets the node DOWN" in text


def test_a_sign_of_life_forbids_the_power_off() -> None:
    """The job consents only once its node has been found dead, and is seen to live by then."""
    site, name, job = _cut_off(provider=False)
    job.comment = ""
    site.run(90)
    assert site.incident(name).dead
    assert told(site, "cannot be fenced") == []
    site.machine(name).agent_up, site.machine(name).cut_off = False, False
    site.run(20)
    job.comment = "holdfast"
    site.run(5)
    assert "its kernel answers the head node" in body(site, "cannot be fenced")
    assert "Verdict of now: silent; before that node.dead" in body(site, "cannot be fenced")
    assert "It shows a sign of life: do not power it off." in body(site, "cannot be fenced")
