"""An agent that claims another node's machine: nothing happens to the other node, and an operator is told of both."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.model.incident import Incident, IncidentKind, IncidentState
from holdfast.model.machine import ProviderCan
from holdfast_checks.result import Remedy
from support.simulated import Site
from support.simulated.provider import FULL, IN_PLACE
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


def untouched(site: Site, job: SimJob) -> None:
    """Neither n2's machine nor its place in Slurm, its job or its agent has been asked for anything that changes it."""
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


def test_the_other_nodes_machine_is_not_repaired_either_while_two_claim_it() -> None:
    site, job = lying_site()
    site.slurm.finish(job, "COMPLETED")
    site.run(5)
    site.fault(OTHER, remedy=Remedy.REPLACE)
    site.run(900, step_s=5)
    assert site.provider.terminated == {}
    assert site.provider.cycled == {}
    assert site.provider.candidates() == set()
    assert site.slurm.nodes[OTHER].drain, "a faulty node is taken out of service all the same"
    assert "claim" in site.incident(OTHER).note or disputes(site)


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
