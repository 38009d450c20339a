"""A real Slurm with power saving on: what it suspends, what it leaves, and a hold next to the look-alike of clustermgtd."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.model.machine import Instance
from holdfast.model.slurm.cluster import Node
from holdfast.practice import Practice
from holdfast.providers import ParallelClusterSettings
from holdfast.providers.parallelcluster.adapter import ParallelClusterProvider
from holdfast.slurm.commands import SlurmCommands
from holdfast.slurm.holding import HeldByReservation
from support.clustermgtd import Backing, ClusterManager
from support.practice import eventually

REASON = "holdfast[0a1b2c3d4e5f]: gpu.xid"
SUSPEND_S = 3
SAVING = """\
SuspendProgram={folder}/suspend
ResumeProgram={folder}/resume
SuspendTime={time_s}
SuspendTimeout=2
ResumeTimeout=30
SuspendExcNodes={kept}
"""


@pytest.fixture
def saving(make_practice: Callable[..., Practice], short_folder: Path) -> Callable[..., Practice]:
    """Makes a cluster with power saving, up."""

    def make(*, nodes: int, time_s: int, kept: str) -> Practice:
        for name in ("suspend", "resume"):
            script = short_folder / name
            script.write_text("#!/bin/sh\nexit 0\n")
            script.chmod(0o755)
        extra = SAVING.format(folder=short_folder, time_s=time_s, kept=kept)
        practice = make_practice(nodes=nodes, extra_slurm_conf=extra)
        practice.up()
        return practice

    return make


class Ground:
    """clustermgtd's actions on a practice cluster. NodeAddr is kept here: no name resolves to a practice node's address."""

    def __init__(self, practice: Practice, slurm: SlurmCommands) -> None:
        self.practice, self.slurm = practice, slurm
        self.homeless: set[str] = set()
        self.machines = {n: f"{n}-1" for n in practice.nodes}
        self.launched_at = datetime.now(UTC)

    def nodes(self) -> Mapping[str, Node]:
        return {name: self.shown(node) for name, node in self.slurm.all_nodes().items()}

    def shown(self, node: Node) -> Node:
        return replace(node, address=node.name) if node.name in self.homeless else node

    def backing(self) -> Mapping[str, Backing]:
        address = self.practice.spec.address
        return {address(n): Backing(i, self.launched_at) for n, i in self.machines.items() if n not in self.homeless}

    def drain(self, node: str, reason: str) -> None:
        self.slurm.drain(node, reason)

    def set_down(self, node: str, reason: str) -> None:
        self.slurm.set_down(node, reason, drain=False)
        self.homeless.add(node)

    def force_power_down(self, node: str, reason: str) -> None:
        raise AssertionError("there is no dynamic node here")

    def forget_address(self, node: str) -> None:
        self.homeless.add(node)

    def terminate(self, instance_id: str) -> None:
        self.practice.machine(instance_id.partition("-")[0]).power_off()

    def launch(self, node: str) -> bool:
        number = int(self.machines[node].rpartition("-")[2]) + 1
        self.machines[node] = f"{node}-{number}"
        self.homeless.discard(node)
        self.practice.machine(node).replace(self.machines[node])
        return True

    # The provider's calls to EC2

    def at(self, address: str) -> Instance | None:
        found = self.backing().get(address)
        return Instance(found.instance_id, "", "running", address=address) if found else None

    def one(self, instance_id: str) -> Instance:
        state = "running" if instance_id in self.machines.values() else "terminated"
        return Instance(instance_id, "", state)

    def reboot(self, instance_id: str) -> None:
        raise AssertionError("an unexpected call")


@pytest.mark.slurm
def test_reserved_and_drained_nodes_are_suspended_and_excluded_ones_are_not(saving: Callable[..., Practice]) -> None:
    practice = saving(nodes=5, time_s=SUSPEND_S, kept="n1,n2")
    slurm = SlurmCommands(env=practice.command_env())
    slurm.create_reservation("holdfast-spares", ("n1", "n3"), users=("root",), duration_s=None)
    HeldByReservation(slurm).drain("n2", REASON)
    slurm.drain("n4", REASON)
    eventually(lambda: {n.name for n in slurm.all_nodes().values() if n.asleep} == {"n3", "n4", "n5"}, within_s=20)
    time.sleep(SUSPEND_S)
    assert {n.name for n in slurm.all_nodes().values() if n.asleep} == {"n3", "n4", "n5"}


@pytest.mark.slurm
def test_a_held_node_is_left_alone_and_an_exchange_goes_through_slurm(saving: Callable[..., Practice]) -> None:
    practice = saving(nodes=3, time_s=3600, kept="n3")
    plain = SlurmCommands(env=practice.command_env())
    held = HeldByReservation(plain)
    ground = Ground(practice, plain)
    manager = ClusterManager(ground, lambda: datetime.now(UTC), time.monotonic)
    settings = ParallelClusterSettings("pc", "us-east-1")
    provider = ParallelClusterProvider(settings, scheduler=held, machines=ground)
    held.create_reservation("holdfast-spares", ("n3",), users=("root",), duration_s=None)
    held.drain("n1", REASON)
    held.drain("n3", REASON)
    plain.drain("n2", "holdfast[0a1b2c3d4e5f]: as elsewhere")
    manager.turn()
    assert manager.terminated == [("n2", "n2-1")], "a drained node is given away, a held one and a held spare are not"
    job = practice.sbatch("sleep 2", "-N1", "-w", "n1")
    for _ in range(2):
        shown = provider.replace("n1", "n1-1", incident="0a1b2c3d4e5f", token="t")
        assert (shown.instance_id, shown.node) == ("n1-1", "n1")
    eventually(lambda: "POWERED_DOWN" in plain.node("n1").flags, within_s=10)
    for _ in range(2):
        manager.turn()
    assert manager.terminated == [("n2", "n2-1"), ("n1", "n1-1")]
    eventually(lambda: plain.node("n1").responding and not plain.node("n1").asleep, within_s=15)
    assert provider.replace("n1", "n1-1", incident="0a1b2c3d4e5f", token="t").instance_id == "n1-2"
    assert held.node("n1").draining, "held until it is proved"
    assert held.job(job).state == "PENDING"
    held.undrain("n1")
    eventually(lambda: held.job(job).state in ("RUNNING", "COMPLETED"), within_s=15)
    assert not plain.node("n1").out_of_service
    assert not held.node("n3").asleep
