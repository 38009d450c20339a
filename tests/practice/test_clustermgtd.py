"""The look-alike's rules, as a table of node states."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.model.slurm.cluster import Node
from support.clustermgtd import healthy, is_drained, is_up
from support.parallelcluster import ClusterSite
from support.simulated.slurm import PowerSaving

AT = datetime(2026, 1, 1, tzinfo=UTC)
STATIC, DYNAMIC = "gpu-st-p5-1", "gpu-dy-p5-1"


def shown(state: str, name: str = STATIC, address: str = "10.0.0.1") -> Node:
    base, *flags = state.split("+")
    return Node(name=name, base_state=base, flags=frozenset(flags), address=address)


@pytest.mark.parametrize(
    ("state", "kept", "kept_while_replaced"),
    [
        ("IDLE", True, True),
        ("ALLOCATED", True, True),
        ("IDLE+RESERVED", True, True),
        ("IDLE+MAINTENANCE+RESERVED", True, True),
        ("IDLE+DRAIN", False, True),
        ("IDLE+DRAIN+RESERVED", False, True),
        ("IDLE+DRAIN+MAINTENANCE+RESERVED", False, True),
        ("ALLOCATED+DRAIN", True, True),
        ("MIXED+DRAIN", True, True),
        ("IDLE+DRAIN+COMPLETING", True, True),
        ("DOWN", False, True),
        ("DOWN+DRAIN", False, True),
        ("DOWN+NOT_RESPONDING", False, True),
        ("IDLE+NOT_RESPONDING", True, True),
        ("IDLE+DRAIN+REBOOT_REQUESTED", True, True),
        ("DOWN+REBOOT_ISSUED", True, True),
        ("IDLE+DRAIN+POWER_DOWN", True, True),
        ("DOWN+POWERING_DOWN", True, True),
        ("DOWN+POWERED_DOWN", False, True),
    ],
)
def test_what_a_turn_leaves_alone(state: str, kept: bool, kept_while_replaced: bool) -> None:
    assert healthy(shown(state), backed=True, replacing=False) is kept
    assert healthy(shown(state), backed=True, replacing=True) is kept_while_replaced
    assert healthy(shown(state, DYNAMIC), backed=True, replacing=True) is kept, "a dynamic one is never being replaced"


def test_a_node_without_a_machine() -> None:
    assert not healthy(shown("IDLE"), backed=False, replacing=False)
    assert not healthy(shown("IDLE", address=STATIC), backed=False, replacing=False)
    assert healthy(shown("IDLE+POWERED_DOWN", DYNAMIC, DYNAMIC), backed=False, replacing=False)


def test_up_and_drained() -> None:
    assert is_up(shown("IDLE+RESERVED"))
    assert not is_up(shown("IDLE+DRAIN"))
    assert not is_up(shown("IDLE+POWERING_DOWN"))
    assert is_drained(shown("DOWN+DRAIN"))
    assert not is_drained(shown("ALLOCATED+DRAIN"))


def site(old: bool) -> ClusterSite:
    nodes = {f"gpu-st-p5-{n}": f"i-{n:04d}" for n in range(1, 4)}
    return ClusterSite(nodes, saving=PowerSaving(excluded=frozenset(nodes)), old=old)


@pytest.mark.parametrize(("old", "ended"), [(False, 1), (True, 10)])
def test_a_maintenance_reservation_did_not_go_well_with_a_replacement_before_3_16(old: bool, ended: int) -> None:
    """aws-parallelcluster#7470: without its time the new machine, which boots for minutes, is replaced at each turn. Holdfast's
    holds have no MAINT flag."""
    here = site(old)
    here.provider.boot_s = 3600.0
    node = here.slurm.nodes[STATIC]
    node.maintenance = True
    here.ground.set_down(STATIC, "psu")
    here.slurm.addresses[STATIC] = here.fleet.address(here.machine(STATIC).instance_id)
    here.run(600, step_s=5)
    assert here.given_away().count(STATIC) == ended


@pytest.mark.slow
def test_a_machine_that_does_not_come_up_is_exchanged_again_after_its_time() -> None:
    here = site(old=False)
    here.provider.boot_s = 36000.0
    here.machine(STATIC).powered = False
    here.ground.set_down(STATIC, "psu")
    here.slurm.addresses[STATIC] = here.fleet.address(here.machine(STATIC).instance_id)
    here.run(3700, step_s=10)
    assert here.given_away().count(STATIC) == 3


def test_an_impaired_machine_is_drained_after_three_minutes() -> None:
    here = site(old=False)
    here.fleet.impaired_since[here.machine(STATIC).instance_id] = here.clock.now()
    here.run(170, step_s=5)
    assert not here.slurm.nodes[STATIC].drain
    here.run(70, step_s=5)
    assert here.given_away() == [STATIC]


@pytest.mark.slow
def test_an_instance_that_no_node_names_is_ended() -> None:
    here = site(old=False)
    here.slurm.addresses["gpu-st-p5-2"] = here.fleet.address(here.machine(STATIC).instance_id)
    here.run(400, step_s=5)
    assert ("", "i-0002") in here.manager.terminated
