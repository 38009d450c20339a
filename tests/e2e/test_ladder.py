"""The lower rungs on a real Slurm: a GPU's reset in the same boot, and a reboot through Slurm; the machine is kept."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.decisions.repair.ladder import LADDER, Rung
from holdfast.model.incidents.incident import IncidentState
from support.practice import eventually
from support.site import PATIENCE_S, Drill, raise_site, raze

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def _whole_ladder(short_folder: Path) -> Iterator[Drill]:
    """The practice replaces for every fault; here every rung may be used."""
    rungs = [rung.value for rung in LADDER]
    folder = Path(tempfile.mkdtemp(prefix="l", dir=short_folder))
    drill = raise_site(folder, nodes=3, spares=0, heartbeat_s=2.0, settings={"repair": {"rungs": rungs}})
    yield drill
    raze(drill)


@pytest.fixture
def drill(_whole_ladder: Drill) -> Drill:
    return _whole_ladder


def _mended(drill: Drill, node: str) -> str:
    """The rung that closed the node's incident."""
    eventually(lambda: drill.incident_on(node).state is IncidentState.CLOSED, within_s=PATIENCE_S)
    eventually(lambda: not drill.node(node).out_of_service and drill.node(node).responding, within_s=PATIENCE_S)
    return drill.incident_on(node).rung


def test_a_gpu_is_reset_and_the_node_serves_again_in_the_same_boot(drill: Drill) -> None:
    node, gone = drill.practice.nodes[0], len(drill.terminated())
    boot = drill.practice.machine(node).host.boot_id
    drill.inject.xid(node, 109, 3)
    assert _mended(drill, node) == Rung.RESET_GPU.value
    assert drill.practice.machine(node).host.boot_id == boot
    assert len(drill.terminated()) == gone


def test_a_reboot_goes_through_slurm_and_another_boot_proves_it(drill: Drill) -> None:
    node, gone = drill.practice.nodes[1], len(drill.terminated())
    boot = drill.practice.machine(node).host.boot_id
    drill.inject.xid(node, 151, 2)
    assert _mended(drill, node) == Rung.REBOOT.value
    assert drill.practice.machine(node).host.boot_id != boot
    assert len(drill.terminated()) == gone
