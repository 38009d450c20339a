"""The pyslurm twin under the contract, where pyslurm is installed for the release of Slurm that is here, and what only it can
be asked. ``./dev slurm-24.11 --pyslurm FOLDER`` builds one (``docs/verified.md``)."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Iterator, Mapping

import pytest

from holdfast.model.slurm.cluster import Job, Node
from holdfast.ports import Scheduler
from holdfast.practice import Practice
from holdfast.slurm import open_scheduler
from holdfast.slurm.commands import SlurmCommands
from holdfast.slurm.pyslurm_twin import SlurmPyslurm, fits, installed_version
from slurm.contract import SchedulerContract
from support.practice import eventually


def _why_not() -> str:
    installed = installed_version()
    if installed is None:
        return "pyslurm is not installed"
    try:
        words = subprocess.run(
            ["slurmctld", "-V"], capture_output=True, text=True, check=True, timeout=10
        ).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return "slurmctld is not here"
    return "" if fits(installed, words[-1]) else f"pyslurm {installed} was not made for Slurm {words[-1]}"


WHY_NOT = _why_not()


@pytest.mark.slurm
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
class TestPyslurm(SchedulerContract):
    twins: list[SlurmPyslurm]

    @pytest.fixture(autouse=True)
    def ended(self) -> Iterator[None]:
        """No process of pyslurm outlives its test."""
        self.twins = []
        yield
        for twin in self.twins:
            twin.close()

    def open(self, env: Mapping[str, str], deadline_s: float = 4.0) -> Scheduler:
        twin = SlurmPyslurm(env=env, deadline_s=deadline_s)
        self.twins.append(twin)
        return twin

    def test_auto_takes_it(self, practice: Practice) -> None:
        twin = open_scheduler("auto", env=practice.command_env())
        assert isinstance(twin, SlurmPyslurm)
        assert twin.view().cluster == practice.spec.name
        twin.close()

    def test_it_sees_what_the_commands_see(self, slurm: Scheduler, practice: Practice) -> None:
        self.running(
            slurm, practice, "-N2", "-w", "n1,n2", "--gres=gpu:3", "--time=1:30:00", "--exclusive", "--comment=a b"
        )
        practice.sbatch("sleep 60", "--array=0-1%1", "-N1", "--begin=now+1hour", "--exclude=n3,n5")
        practice.sbatch("sleep 60", "--array=0-1", "-N1", "-w", "n3")
        practice.sbatch("exit 3")
        practice.sbatch("#!/bin/sh\n#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N1\nsleep 60\n", "--begin=now+1hour")
        slurm.drain("n4", "test: a b")
        practice.machine("n5").power_loss()
        slurm.set_down("n5", "test: dead")
        commands = SlurmCommands(env=practice.command_env())
        eventually(lambda: sorted(job.state for job in commands.view().jobs.values()).count("RUNNING") == 3)
        eventually(lambda: any(job.state == "FAILED" for job in commands.view().jobs.values()))
        ours, theirs = slurm.view(), commands.view()
        assert (set(ours.nodes), set(ours.jobs)) == (set(theirs.nodes), set(theirs.jobs))
        for name, node in theirs.nodes.items():
            assert _differences(ours.nodes[name], node) == _differences(slurm.node(name), node) == {}
        for number, job in theirs.jobs.items():
            assert _differences(ours.jobs[number], job) == _differences(slurm.job(number), job) == {}

    def test_a_change_changes_nothing_else(self, slurm: Scheduler, practice: Practice) -> None:
        options = ["--hold", "--mail-type=END", "--deadline=now+10hours", "--time=2:00:00", "--nice=7", "--requeue"]
        job_id = practice.sbatch(
            "sleep 60", *options, "--contiguous", "--exclusive", "--mem=100", "--no-kill", "--reboot"
        )

        def shown() -> set[str]:
            record = practice.command("scontrol", "show", "job", "-o", str(job_id)).split()
            return {word for word in record if word.partition("=")[0] not in {"AccrueTime", "LastSchedEval"}}

        before = shown()
        slurm.tell_owner(job_id, "word")
        slurm.set_excluded_nodes(job_id, ("n1", "n3"))
        after = shown()
        assert after - before == {"AdminComment=word", "ExcNodeList=n[1,3]"}
        assert before - after == {"ExcNodeList=(null)"}


def _differences(ours: Node | Job, theirs: Node | Job) -> dict[str, tuple[object, object]]:
    names = (field.name for field in dataclasses.fields(ours))
    pairs = {name: (getattr(ours, name), getattr(theirs, name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
