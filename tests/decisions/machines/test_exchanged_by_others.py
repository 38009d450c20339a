"""A node that is out of service for an incident, and whose machine is replaced from outside meanwhile: the new one must prove itself."""

from __future__ import annotations

import pytest

from holdfast.model.actions.action import Assign, Launch
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.machine import ProviderCan
from support.simulated import Site
from support.simulated.provider import FULL, IN_PLACE
from support.simulated.slurm import SimJob

_S = IncidentState
CAN = pytest.mark.parametrize("can", [IN_PLACE, FULL], ids=["in place", "launch first"])


def contained(can: ProviderCan) -> tuple[Site, SimJob]:
    site = Site(4, can=can)
    site.run(5)
    job = site.slurm.submit(1, required=("n1",), exclusive=True)
    site.fault("n1")
    site.run(10)
    assert site.incident("n1").state is _S.CONTAINED
    return site, job


def returned(site: Site) -> bool:
    return (site.incident("n1").state, site.slurm.nodes["n1"].drain) == (_S.CLOSED, False)


@CAN
@pytest.mark.parametrize("early", [True, False], ids=["its job is over first", "it reports first"])
def test_while_contained(can: ProviderCan, early: bool) -> None:
    site, job = contained(can)
    site.provider.exchange("n1")
    site.run(20 if early else 120)
    site.slurm.finish(job, "NODE_FAIL")
    site.run(3600, step_s=5)
    assert returned(site), site.story()
    assert list(site.provider.tokens.values()) == ["i-0005"], "no other machine is launched"
    assert site.provider.serving("n1").instance_id in site.provider.live()


def test_while_another_one_is_on_trial() -> None:
    """The one that was launched for the node is terminated."""
    site, job = contained(FULL)
    site.slurm.finish(job, "FAILED")
    while not site.provider.candidates():
        site.run(1)
    trial = next(iter(site.provider.candidates()))
    site.run(1)
    site.provider.exchange("n1")
    site.run(2 * 3600, step_s=5)
    assert returned(site), site.story()
    assert site.provider.terminated[trial] == 1
    assert site.provider.live() == {"i-0002", "i-0003", "i-0004", site.provider.serving("n1").instance_id}


@CAN
def test_one_that_fails_its_validation_is_an_operators(can: ProviderCan) -> None:
    site, job = contained(can)
    site.provider.launches_broken = True
    site.provider.exchange("n1")
    site.run(120)
    site.slurm.finish(job, "NODE_FAIL")
    site.run(3 * 3600, step_s=5)
    assert site.incident("n1").state is _S.AWAITING_HUMAN, site.story()
    assert list(site.provider.tokens.values()) == ["i-0005"]
    assert len([s for s in site.notices.sent if "needs an operator" in s]) == 1


def launches(site: Site) -> int:
    return sum(isinstance(i.action, Launch | Assign) for i in site.store.intents())


def test_one_that_never_comes_up_is_handed_over_once() -> None:
    site, job = contained(FULL)
    site.provider.exchange("n1")
    site.provider.serving("n1").boots_at_s = 10**9
    site.slurm.finish(job, "NODE_FAIL")
    site.run(6 * 3600, step_s=10)
    assert site.incident("n1").state is _S.AWAITING_HUMAN, site.story()
    assert "the provider shows i-0005" in site.incident("n1").note
    patience_s = site.policy.repair.launch_timeout_s
    assert launches(site) <= patience_s / site.policy.action_backoff_max_s + 10, "one a minute, and not for ever"
    assert list(site.provider.tokens.values()) == ["i-0005"]


def test_one_whose_agent_alone_is_away_is_left_alone_and_an_operator_notified() -> None:
    site, job = contained(FULL)
    site.provider.exchange("n1")
    site.provider.serving("n1").agent_up = False
    site.slurm.finish(job, "NODE_FAIL")
    site.run(6 * 3600, step_s=10)
    assert list(site.provider.tokens.values()) == ["i-0005"], site.story()
    assert launches(site) < 20
    assert len([s for s in site.notices.sent if "n1" in s]) in (1, 2)


@CAN
def test_a_machine_that_another_hand_rebooted_is_validated_first(can: ProviderCan) -> None:
    site, job = contained(can)
    site.provider.power_cycle("n1")
    site.run(120)
    site.slurm.finish(job, "NODE_FAIL")
    site.run(1800, step_s=5)
    assert returned(site), site.story()
    assert (dict(site.provider.tokens), dict(site.provider.terminated)) == ({}, {})


@CAN
def test_a_reboot_whose_checks_are_not_all_well_is_repaired(can: ProviderCan) -> None:
    site, job = contained(can)
    site.machine("n1").all_ok = False
    site.provider.power_cycle("n1")
    site.run(120)
    site.slurm.finish(job, "NODE_FAIL")
    site.run(1800, step_s=5)
    assert site.provider.terminated["i-0001"] == 1, site.story()
