"""An agent that claims another node's machine: nothing happens to the other node, and an operator is notified of both."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.controller.observing.agents import Hello
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState
from holdfast.model.machine import ProviderCan
from holdfast_checks.result import Remedy
from support.simulated import Site
from support.simulated.provider import FULL, IN_PLACE
from support.simulated.site import NO_BUDGET
from support.simulated.slurm import SimJob

LIAR, OTHER, THEIRS = "n4", "n2", "i-0002"
CYCLES = replace(IN_PLACE, replace=False, replace_in_place=False, stop_start=True)


def lying_site(can: ProviderCan = FULL, *, from_the_start: bool = False) -> tuple[Site, SimJob]:
    """The agent of n4 says that its machine is n2's, in the same boot, from its next heartbeat on; a job runs on n2."""
    site = Site(can=can, warm=not from_the_start)
    site.machine(LIAR).instance_id = THEIRS
    job = site.slurm.submit(1, gpus=8)
    others = [site.slurm.submit(1, gpus=8) for _ in range(3)]
    theirs = next(j for j in (job, *others) if j.nodes == (OTHER,))
    for each in (job, *others):
        if each.nodes == (LIAR,):
            site.slurm.finish(each, "COMPLETED")
    site.run(60, step_s=5)
    return site, theirs


def claim(site: Site, node: str, instance_id: str) -> None:
    """A heartbeat of the node's agent that names that machine."""
    hello = Hello(node, instance_id, f"{instance_id}-boot-1", interval_s=10.0, all_ok=True)
    site.agents.registry.heard(hello, site.clock.now(), site.clock.monotonic_s())


def untouched(site: Site, job: SimJob) -> None:
    """Nothing has changed n2's machine, its state in Slurm, its job or its agent."""
    ended = site.provider.terminated[THEIRS], list(site.provider.cycled.values()).count(THEIRS)
    assert ended == (0, 0), site.story()
    assert THEIRS not in site.provider.replaced
    assert site.provider.serving(OTHER).instance_id == THEIRS
    assert OTHER not in [name for _, name in site.slurm.taken_out]
    assert (job.state, job.restarts, job.nodes) == ("RUNNING", 0, (OTHER,)), site.story()
    assert not site.slurm.nodes[OTHER].down
    assert site.machine(OTHER).boot == 1


def disputes(site: Site) -> list[Incident]:
    return [i for i in site.store.incidents() if i.kind is IncidentKind.DISPUTED]


@pytest.mark.sampled
@pytest.mark.parametrize("from_the_start", [False, True])
@pytest.mark.parametrize(
    ("remedy", "can"),
    [
        (Remedy.RESET_GPU, FULL),
        (Remedy.REBOOT, FULL),
        (Remedy.REBOOT, CYCLES),
        (Remedy.STOP_START, FULL),
        (Remedy.STOP_START, CYCLES),
        (Remedy.REPLACE, FULL),
        (Remedy.REPLACE, IN_PLACE),
    ],
)
def test_a_repair_of_the_liar_does_not_touch_the_node_whose_machine_it_claims(
    remedy: Remedy, can: ProviderCan, from_the_start: bool
) -> None:
    site, job = lying_site(can, from_the_start=from_the_start)
    site.fault(LIAR, remedy=remedy)
    site.run(1200, step_s=5)
    untouched(site, job)
    (dispute,) = disputes(site)
    assert dispute.open
    assert dispute.instance_id == THEIRS
    assert LIAR in dispute.headline
    assert OTHER in dispute.headline
    assert any(THEIRS in subject and LIAR in subject and OTHER in subject for subject in site.notices.sent)


def test_the_death_of_the_liar_does_not_end_the_other_nodes_machine() -> None:
    site, job = lying_site()
    site.fault(LIAR, remedy=Remedy.REBOOT)
    machine = site.machine(LIAR)
    machine.powered = False
    site.run(1800, step_s=5)
    untouched(site, job)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("remedy", "can"),
    [(Remedy.REBOOT, CYCLES), (Remedy.STOP_START, FULL), (Remedy.REPLACE, FULL), (Remedy.REPLACE, IN_PLACE)],
)
@pytest.mark.parametrize("liar_has_a_fault", [False, True])
def test_the_node_whose_machine_it_is_is_repaired_all_the_same(
    remedy: Remedy, can: ProviderCan, liar_has_a_fault: bool
) -> None:
    """Its own agent, the record and the provider name the machine; the other agent only claims it."""
    site, job = lying_site(can)
    site.slurm.finish(job, "COMPLETED")
    site.run(5)
    if liar_has_a_fault:
        site.fault(LIAR, remedy=Remedy.REPLACE)
        site.run(30)
    site.fault(OTHER, remedy=remedy)
    site.run(900, step_s=5)
    assert not site.incident(OTHER).open, site.story()
    touched = {*site.provider.cycled.values(), *site.provider.terminated}
    assert touched == {THEIRS}
    (dispute,) = disputes(site)
    assert dispute.node == LIAR
    assert dispute.open is (THEIRS not in site.provider.terminated), "of a machine that is gone one node alone speaks"


def test_one_token_stops_no_repair_but_its_own() -> None:
    """One agent claims the machines of three nodes in turn."""
    site = Site(20, policy=NO_BUDGET)
    for number in (2, 3, 5):
        claim(site, LIAR, f"i-{number:04d}")
    site.run(30)
    for name in ("n2", "n3", "n5"):
        site.fault(name, remedy=Remedy.REPLACE)
    for _ in range(180):
        for number in (2, 3, 5):
            claim(site, LIAR, f"i-{number:04d}")
        site.run(5, step_s=5)
    assert [site.incident(name).open for name in ("n2", "n3", "n5")] == [False] * 3, site.story()
    assert {each.node for each in disputes(site)} == {LIAR}


@pytest.mark.parametrize("off", [True, False], ids=["seen off", "not seen off"])
def test_a_dead_nodes_machine_is_replaced_under_a_claim_only_once_its_power_is_seen_off(off: bool) -> None:
    """A machine that is off cannot be that of an agent that reports. Otherwise the machine may have got another name."""
    site, _ = lying_site(FULL if off else replace(FULL, status=False))
    site.provider.serving(OTHER).powered = False
    site.run(2400, step_s=5)
    assert site.provider.terminated[THEIRS] == (1 if off else 0)
    assert site.incident(OTHER).open is not off, site.story()


def test_the_node_by_the_record_is_left_alone_too_where_the_provider_names_no_one() -> None:
    site, job = lying_site()
    site.slurm.finish(job, "COMPLETED")
    site.provider._shown[THEIRS] = replace(site.provider._shown[THEIRS], node="")
    site.fault(OTHER, remedy=Remedy.STOP_START)
    site.run(600, step_s=5)
    assert site.provider.cycled == {}
    assert site.provider.terminated == {}


def test_a_claim_moves_no_machine_away_from_the_node_that_has_it() -> None:
    site, _ = lying_site()
    site.run(600, step_s=5)
    records = site.book.nodes
    assert (records[OTHER].instance_id, records[LIAR].instance_id) == (THEIRS, "i-0004")


def test_a_dispute_ends_when_the_claim_does_and_the_node_is_repaired_then() -> None:
    site, job = lying_site()
    (dispute,) = disputes(site)
    assert dispute.state is IncidentState.WATCHING
    site.provider.serving(LIAR).instance_id = "i-0004"
    site.run(60, step_s=5)
    assert not disputes(site)[0].open
    site.fault(LIAR, remedy=Remedy.REBOOT)
    site.run(300, step_s=5)
    assert list(site.provider.cycled.values()) == ["i-0004"]
    untouched(site, job)


def test_an_operator_who_closes_the_dispute_is_not_told_of_it_again_at_once_and_nothing_is_done() -> None:
    site, job = lying_site()
    (dispute,) = disputes(site)
    site.fault(LIAR, remedy=Remedy.STOP_START)
    site.operate("close", dispute.id)
    site.run(600, step_s=5)
    assert len(disputes(site)) == 1
    untouched(site, job)


def test_a_node_that_slurm_no_longer_has_claims_nothing() -> None:
    """Renamed: the machine reports under its new name, and the store still has the old one."""
    site = Site(5)
    del site.slurm.nodes["n5"]
    site.machine("n5").agent_up = False
    site.machine(LIAR).instance_id = "i-0005"
    site.run(60, step_s=5)
    assert disputes(site) == []
