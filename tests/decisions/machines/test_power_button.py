"""A node is switched off and on by hand, unannounced: it keeps its machine, and one launched for it meanwhile is terminated."""

from __future__ import annotations

import pytest

from holdfast.model.actions.action import Launch, Replace, StopStart, Terminate
from holdfast.model.incidents.incident import IncidentState
from support.simulated import Site
from support.simulated.provider import FULL, IN_PLACE

BOOT_S = 120.0


def _site(can: object, *, job: bool) -> Site:
    site = Site(8, can=can)  # type: ignore[arg-type]
    if job:
        running = site.slurm.submit(1, comment="holdfast", exclusive=True, required=("n2",))
        site.registers(running)
        site.run(5)
    return site


def _switched_on(site: Site, name: str = "n2") -> None:
    machine = site.machine(name)
    machine.powered, machine.boot, machine.boots_at_s = True, machine.boot + 1, site.clock.elapsed_s + BOOT_S


@pytest.mark.sampled(pairs=True)
@pytest.mark.parametrize("can", [FULL, IN_PLACE], ids=["beside", "in place"])
@pytest.mark.parametrize("off_s", [12, 20, 28])
@pytest.mark.parametrize("job", [False, True], ids=["idle", "job"])
@pytest.mark.parametrize("beat_s", [None, 4.0], ids=["10s", "4s"])
def test_a_node_that_was_off_for_seconds_keeps_its_machine(
    can: object, off_s: int, job: bool, beat_s: float | None
) -> None:
    site = _site(can, job=job)
    if beat_s is not None:
        for machine in site.machines.values():
            machine.heartbeat_s = beat_s
        site.run(20)
    old = site.machine("n2").instance_id
    site.machine("n2").powered = False
    site.run(off_s)
    _switched_on(site)
    site.run(1200, step_s=2)
    assert (site.machine("n2").instance_id, site.provider.tokens, site.provider.terminated) == (old, {}, {})
    assert site.incident("n2").state is IncidentState.CLOSED
    assert (site.slurm.nodes["n2"].down, site.slurm.nodes["n2"].drain) == (False, False)


@pytest.mark.parametrize("can", [FULL, IN_PLACE], ids=["beside", "in place"])
def test_power_is_read_again_right_before_a_step_at_the_machine(can: object) -> None:
    """It comes back between the decision and the step."""
    site = _site(can, job=False)
    machine = site.machine("n2")

    def takes(intent: object, moment: str) -> None:
        action = getattr(intent, "action", None)
        if moment == "planned" and isinstance(action, Launch | Replace | StopStart | Terminate) and not machine.powered:
            _switched_on(site)

    site.at_boundary = takes
    machine.powered = False
    site.run(1500, step_s=2)
    assert (machine.boot, machine.powered) == (2, True)
    assert (site.provider.tokens, site.provider.terminated) == ({}, {})
    assert site.incident("n2").state is IncidentState.CLOSED


@pytest.mark.parametrize("boot_s", [10.0, 120.0], ids=["before the new one", "after it"])
def test_a_machine_that_comes_back_while_its_replacement_was_launched_keeps_the_node(boot_s: float) -> None:
    site = _site(FULL, job=True)
    old = site.machine("n2").instance_id
    site.machine("n2").powered = False
    for _ in range(200):
        site.run(1)
        if site.provider.tokens:
            break
    (launched,) = site.provider.tokens.values()
    machine = site.machine("n2")
    machine.powered, machine.boot, machine.boots_at_s = True, 2, site.clock.elapsed_s + boot_s
    site.run(1800, step_s=2)
    assert (site.machine("n2").instance_id, dict(site.provider.terminated)) == (old, {launched: 1})
    assert site.incident("n2").state is IncidentState.CLOSED
    assert (site.slurm.nodes["n2"].down, site.slurm.nodes["n2"].drain) == (False, False)


def test_one_that_comes_back_without_its_agent_is_an_operators_to_decide() -> None:
    site = _site(FULL, job=True)
    old = site.machine("n2").instance_id
    site.machine("n2").powered = False
    for _ in range(200):
        site.run(1)
        if site.provider.tokens:
            break
    (launched,) = site.provider.tokens.values()
    _switched_on(site)
    site.machine("n2").agent_up, site.machine("n2").boots_at_s = False, 0.0
    site.run(3600, step_s=2)
    assert site.incident("n2").state is IncidentState.AWAITING_HUMAN
    assert any("n2 needs an operator" in subject for subject in site.notices.sent)
    assert (site.machine("n2").instance_id, dict(site.provider.terminated)) == (old, {launched: 1})


@pytest.mark.parametrize("can", [FULL, IN_PLACE], ids=["beside", "in place"])
def test_power_that_stays_off_is_repaired_within_two_minutes(can: object) -> None:
    site = _site(can, job=True)
    site.machine("n2").powered = False
    site.run(120)
    assert len(site.provider.tokens) == 1
    site.run(900, step_s=2)
    assert site.incident("n2").state is IncidentState.CLOSED
