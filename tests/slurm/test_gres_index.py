"""GRES indices on a real Slurm whose gres.conf lists the GPUs shifted by one: the fault of a GPU hits the job that holds it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.agent.node.processes import SlurmNode
from holdfast.agent.sources.gres import GresWatch
from holdfast.decisions.common.gpu_link import GpuLink, link
from holdfast.model.agents.report import AgentView
from holdfast.model.book import Book, World
from holdfast.model.slurm.cluster import ClusterView
from holdfast.practice import Practice
from holdfast.slurm.commands import SlurmCommands
from support.practice import eventually
from support.simulated.site import POLICY
from support.store_nouns import incident

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def practice(short_folder: Path) -> Iterator[Practice]:
    folder = Path(tempfile.mkdtemp(prefix="i", dir=short_folder))
    folder.chmod(0o755)
    made = Practice.create(folder / "c", nodes=1, gpus=8)
    devices = made.folder / "gres"
    (devices / "nvidia8").touch()
    (made.folder / "etc" / "gres.conf").write_text(f"AutoDetect=off\nName=gpu File={devices}/nvidia[1-8]\n")
    try:
        made.up()
        if _in_a_chroot(made):
            pytest.skip(
                "slurmd runs in a chroot, of which the agent takes no proof: .ci/slurm-release with --pyslurm runs this inside"
            )
        yield made
    finally:
        made.remove()


def _in_a_chroot(practice: Practice) -> bool:
    pid = int((practice.folder / "run" / "slurmd.n1.pid").read_text())
    return os.readlink(f"/proc/{pid}/root") != os.readlink("/proc/self/root")


@pytest.fixture
def watch(practice: Practice) -> Iterator[GresWatch]:
    made = GresWatch(SlurmNode("n1", practice.folder / "run" / "slurmd.n1.pid", "scontrol", practice.slurm_conf))
    made.start()
    yield made
    made.stop()


def _world(view: ClusterView, agent: AgentView) -> World:
    return World(view.read_at, POLICY, Book(), view, agents={"n1": (agent,)})


def test_the_innocent_job_is_told_from_the_one_that_holds_the_gpu(practice: Practice, watch: GresWatch) -> None:
    jobs = [practice.sbatch("sleep 600", "-N1", "--gres=gpu:2") for _ in range(2)]
    slurm = SlurmCommands(env=practice.command_env())
    eventually(lambda: all(slurm.job(job).state == "RUNNING" for job in jobs), within_s=30)
    view = slurm.view()
    assert [view.jobs[job].gpu_indices["n1"] for job in jobs] == [{0, 1}, {2, 3}]
    eventually(lambda: watch.told(range(9))[0] is not None, within_s=30, why=lambda: watch.told(range(9))[1])
    found, _ = watch.told(range(9))
    assert found == {"gpu": tuple(range(1, 9))}
    agent = AgentView("n1", "i-1", "boot-1", view.read_at, view.read_at, gres=found)
    fault = incident(node="n1", instance_id="i-1", boot_id="boot-1", gpu_minors=frozenset({2}))
    links = [link(_world(view, agent), fault, view.jobs[job]) for job in jobs]
    assert links == [GpuLink.HOLDS, GpuLink.HOLDS_OTHERS], "as an index, GPU 2 would be the second job's"
    unproved = replace(agent, gres=None)
    assert {link(_world(view, unproved), fault, view.jobs[job]) for job in jobs} == {GpuLink.UNPROVEN}
    for job in jobs:
        practice.command("scancel", str(job))


def test_a_gres_conf_that_nvml_or_the_running_slurmd_contradicts_proves_nothing(
    practice: Practice, watch: GresWatch
) -> None:
    eventually(lambda: watch.told(range(9))[0] is not None, within_s=30, why=lambda: watch.told(range(9))[1])
    assert watch.listed == frozenset(range(1, 9))
    assert watch.told(range(8)) == (None, "gres.conf: /dev/nvidia8 is no GPU; NVML has minors 0-7")
    (practice.folder / "etc" / "gres.conf").touch()
    assert watch.listed is None
    assert watch.told(range(9))[0] is None
    eventually(lambda: "restart slurmd" in watch.told(range(9))[1], within_s=30, why=lambda: watch.told(range(9))[1])
