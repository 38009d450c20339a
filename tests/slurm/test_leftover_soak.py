"""Ending leftover steps repeatedly on the same nodes: the evidence for ``death.end_leftover_steps`` (``docs/verified.md``).

One job, nine nodes, twenty rounds: the ninth loses its power and is set DOWN, the survivors end what is left of the job, the
node comes back, and the job starts on the same nine again. After each round nothing may be left behind."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from statistics import median

import pytest

from holdfast.agent.node.processes import SlurmNode, live_tasks
from holdfast.agent.orders import verbs
from holdfast.agent.orders.orders import ReceivedOrder
from holdfast.practice import Injector, Practice
from holdfast.slurm.commands import SlurmCommands
from support.practice import eventually

pytestmark = [pytest.mark.slurm, pytest.mark.soak]

ROUNDS = int(os.environ.get("HOLDFAST_LEFTOVER_ROUNDS", "20"))
NODES = 9
"""slurmstepd processes report through a tree of seven; with fewer nodes none waits for the dead one."""
LEFT_ALONE_S = 90.0
"""Longer than Slurm's own wait of about a minute."""


@pytest.mark.parametrize("ending", [True, False], ids=["ended", "left-alone"])
def test_the_same_nodes_again_and_again(
    make_practice: Callable[..., Practice], capsys: pytest.CaptureFixture[str], ending: bool
) -> None:
    practice = make_practice(nodes=NODES, gpus=1, cpus=4)
    practice.up()
    trial = Trial(practice)
    for number in range(1, (ROUNDS if ending else 1) + 1):
        trial.round(number, ending)
    with capsys.disabled():
        sys.stdout.write(f"\n{trial.report()}\n")


class Trial:
    def __init__(self, practice: Practice) -> None:
        self.practice = practice
        self.slurm = SlurmCommands(env=practice.command_env())
        self.nodes = {name: self._node(name) for name in practice.nodes}
        self.survivors = [self.nodes[name] for name in practice.nodes[:-1]]
        self.dead = practice.nodes[-1]
        self.left: list[int] = []
        self.ended: list[int] = []
        self.waited_s: list[float] = []
        self.job_id = practice.sbatch(f"srun -N{NODES} -n{NODES} sleep 3000\n", f"-N{NODES}", f"-n{NODES}", "--requeue")

    def round(self, number: int, ending: bool) -> None:
        self._until_all_work(number)
        Injector(self.practice).power_loss(self.dead)
        self.slurm.set_down(self.dead, f"round {number}")
        began = time.monotonic()
        steps = [(node, step) for node in self.survivors for step in node.stepds(self.job_id) if step.step == "0"]
        eventually(lambda: all(live_tasks(step) == 0 for _, step in steps), within_s=20)
        time.sleep(1.0)
        self.left.append(sum(len(node.stepds(self.job_id)) for node in self.survivors))
        if ending:
            self._end(number)
        eventually(lambda: self.slurm.job(self.job_id).state == "PENDING", within_s=15 if ending else LEFT_ALONE_S)
        self.waited_s.append(time.monotonic() - began)
        self._back_again(number)

    def report(self) -> str:
        return (
            f"Slurm {self.slurm.version()}, {len(self.left)} rounds: steps left 1 s after the tasks' end {self.left}, ended "
            f"{self.ended}; DOWN to PENDING: median {median(self.waited_s):.1f} s, most {max(self.waited_s):.1f} s"
        )

    def _node(self, name: str) -> SlurmNode:
        return SlurmNode(
            name, self.practice.folder / "run" / f"slurmd.{name}.pid", "scontrol", self.practice.slurm_conf
        )

    def _until_all_work(self, number: int) -> None:
        eventually(lambda: self.slurm.job(self.job_id).state == "RUNNING", within_s=30)
        job = self.slurm.job(self.job_id)
        assert (job.nodes, job.restarts) == (self.practice.nodes, number - 1)
        nodes = self.nodes.values()
        eventually(
            lambda: all(
                [live_tasks(step) > 0 for step in node.stepds(self.job_id) if step.step == "0"] == [True]
                for node in nodes
            ),
            within_s=30,
        )

    def _end(self, number: int) -> None:
        order = ReceivedOrder(
            f"o{number}", "end_leftover_step", {"job_id": self.job_id, "grace_s": 0.3}, "", "", time.monotonic() + 60
        )
        done = [verbs.end_leftover_step(node)(order) for node in self.survivors]
        assert all(each.ok for each in done)
        self.ended.append(sum(len(each.detail["ended"]) for each in done))

    def _back_again(self, number: int) -> None:
        """Nothing is left of the run, no survivor was taken out of service, and all nine are there again."""
        assert all(not node.stepds(self.job_id) for node in self.survivors)
        states = self.slurm.view().nodes
        assert [name for name, node in states.items() if node.out_of_service] == [self.dead]
        assert self.slurm.job(self.job_id).restarts == number
        Injector(self.practice).heal(self.dead)
        eventually(lambda: self.slurm.node(self.dead).responding, within_s=30)
        time.sleep(2.0)  # the practice starts slurmd a second time after a boot: a step launched at that moment is lost
        self.slurm.undrain(self.dead)
        eventually(lambda: not any(node.out_of_service for node in self.slurm.view().nodes.values()), within_s=30)
        self.slurm.release(self.job_id)
