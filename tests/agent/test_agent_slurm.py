"""What the agent does with processes of a real Slurm: finds their owners, and ends leftover steps."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.agent.node.processes import SlurmNode, live_tasks
from holdfast.agent.orders import verbs
from holdfast.agent.orders.orders import ReceivedOrder
from holdfast.model.errors import Rejected
from holdfast.practice.cluster.cluster import Practice

pytestmark = pytest.mark.slurm

NODES = tuple(f"n{number}" for number in range(1, 10))
"""Nine: slurmstepd processes report through a tree of seven; with fewer nodes none waits for the dead one."""


@pytest.fixture
def cluster() -> Iterator[Practice]:
    with tempfile.TemporaryDirectory(prefix="hf") as folder:
        Path(folder).chmod(0o755)
        practice = Practice.create(Path(folder) / "c", nodes=len(NODES), gpus=1, cpus=4)
        try:
            practice.up()
            yield practice
        finally:
            practice.down()


def slurm_node(practice: Practice, node: str) -> SlurmNode:
    return SlurmNode(node, practice.folder / "run" / f"slurmd.{node}.pid", "scontrol", practice.slurm_conf)


def until(condition: Callable[[], bool], timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.1)


def order(verb: str, **args: object) -> ReceivedOrder:
    return ReceivedOrder("o1", verb, args, "", "", time.monotonic() + 60)


def state_of(practice: Practice, job: int) -> str:
    return practice.command("squeue", "-h", "-o", "%T", "-t", "all", "-j", str(job)).strip()


def test_processes_steps_and_a_leftover_step_of_a_dead_nodes_job(cluster: Practice) -> None:
    assert slurm_node(cluster, "n1").job_pids() == slurm_node(cluster, "n1").job_pids(77) == {}, "no job yet"
    job = cluster.sbatch("srun -N9 -n9 sleep 300\n", "-N9", "-n9", "--requeue")
    nodes = {name: slurm_node(cluster, name) for name in NODES}
    until(lambda: all(job in node.job_pids() for node in nodes.values()), 20)
    until(lambda: all(any(step.step == "0" for step in node.stepds(job)) for node in nodes.values()), 5)

    assert nodes["n1"].job_pids(job + 1) == {}
    spec = cluster.spec
    assert nodes["n1"].address_of("n9") == (spec.address("n9"), spec.slurmd_port("n9"))
    with pytest.raises(Rejected, match="Slurm has no node n10"):
        nodes["n1"].address_of("n10")
    assert {step.step for step in nodes["n1"].stepds()} == {"batch", "0"}
    assert {step.step for step in nodes["n9"].stepds()} == {"0"}
    assert all(live_tasks(step) > 0 for node in nodes.values() for step in node.stepds(job))

    held = verbs.validate(lambda _wanted: {}, {}, list, int, nodes["n1"])(order("validate", expect_no_job=True))
    assert (held.ok, held.detail["jobs"]) == (False, [job])

    with pytest.raises(Rejected, match=f"job {job} is RUNNING, its run is not over"):
        verbs.end_leftover_step(nodes["n1"])(order("end_leftover_step", job_id=job, grace_s=0.1))
    assert state_of(cluster, job) == "RUNNING"

    cluster.machine("n9").power_loss()
    cluster.command("scontrol", "update", "nodename=n9", "state=down", "reason=power")
    survivors = [nodes[name] for name in NODES[:-1]]
    until(lambda: all(live_tasks(step) == 0 for node in survivors for step in node.stepds(job)), 10)
    time.sleep(1.0)
    assert any(node.stepds(job) for node in survivors), "without a leftover step this test shows nothing"
    assert state_of(cluster, job) == "COMPLETING"

    done = [verbs.end_leftover_step(node)(order("end_leftover_step", job_id=job, grace_s=0.3)) for node in survivors]
    assert all(each.ok for each in done)
    assert any(each.detail["ended"] == [f"{job}.0"] for each in done)
    until(lambda: state_of(cluster, job) == "PENDING", 10)
