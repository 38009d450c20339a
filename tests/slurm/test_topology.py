"""Slurm's topology: as text, and as a real slurmctld shows it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.model.background import Topology
from holdfast.practice import Practice
from holdfast.slurm.commands import SlurmCommands
from holdfast.slurm.parse import topology

TREE = """\
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[3-4]
SwitchName=root Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=leaf[1-2]
"""
BLOCKS = "BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\nBlockName=b2 BlockIndex=1 Nodes=n3 BlockSize=2\n"
UNDER_TREE = {n: ("leaf1" if n in ("n1", "n2") else "leaf2", "root") for n in ("n1", "n2", "n3", "n4")}


@pytest.mark.parametrize(
    ("text", "switches"),
    [
        (TREE, UNDER_TREE),
        ("".join(reversed(TREE.splitlines(keepends=True))), UNDER_TREE),
        (BLOCKS, {"n1": ("b1",), "n2": ("b1",), "n3": ("b2",)}),
        ("", {}),
        ("No topology information available\n", {}),
        ("SwitchName=empty Level=0 LinkSpeed=1\n", {}),
    ],
    ids=["tree", "another order", "blocks", "nothing", "a sentence", "a switch without nodes"],
)
def test_text(text: str, switches: dict[str, tuple[str, ...]]) -> None:
    assert topology(text) == Topology(switches)


@pytest.mark.slurm
def test_a_real_tree(make_practice: Callable[..., Practice]) -> None:
    """As TREE, from ``topology.conf``."""
    practice = make_practice(nodes=4, gpus=1, extra_slurm_conf="TopologyPlugin=topology/tree\n")
    lines = ("SwitchName=leaf1 Nodes=n[1-2]", "SwitchName=leaf2 Nodes=n[3-4]", "SwitchName=root Switches=leaf[1-2]")
    (practice.slurm_conf.parent / "topology.conf").write_text("\n".join(lines) + "\n")
    practice.up()
    assert SlurmCommands(env=practice.command_env()).topology() == Topology(UNDER_TREE)
