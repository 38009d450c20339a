"""The commands twin under the contract, and what only it can be asked."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast.model.errors import NotPermitted, Unavailable
from holdfast.ports import Scheduler
from holdfast.practice import Practice
from holdfast.slurm.commands import SlurmCommands
from slurm.contract import OWNER, ROOT, SchedulerContract


@pytest.mark.slurm
class TestCommands(SchedulerContract):
    def open(self, env: Mapping[str, str], deadline_s: float = 4.0) -> Scheduler:
        return SlurmCommands(env=env, deadline_s=deadline_s)

    @ROOT
    def test_no_permission(self, slurm: Scheduler, practice: Practice, tmp_path: Path) -> None:
        job_id = practice.sbatch("sleep 60")
        scontrol = _wrapper(tmp_path, "scontrol", OWNER)
        env = practice.command_env()
        twin = SlurmCommands(env={**env, "PATH": f"{scontrol.parent}:{env['PATH']}"})
        with pytest.raises(NotPermitted):
            twin.drain("n1", "x")
        with pytest.raises(NotPermitted):
            twin.create_reservation("r", ("n1",), users=("root",), duration_s=60)
        with pytest.raises(NotPermitted):
            twin.reboot("n1", "x")
        with pytest.raises(NotPermitted):
            twin.requeue(job_id)
        assert not slurm.node("n1").draining
        assert len(twin.view().nodes) == 5


def _wrapper(folder: Path, command: str, uid: int) -> Path:
    """A command of the same name that runs the real one as another user."""
    script = folder / command
    script.write_text(f'#!/bin/sh\nexec setpriv --reuid={uid} --clear-groups /usr/bin/{command} "$@"\n')
    script.chmod(0o755)
    return script


def test_signatures_are_the_ports() -> None:
    wanted = {name: member for name, member in inspect.getmembers(Scheduler, inspect.isfunction) if name[0] != "_"}
    for name, member in wanted.items():
        assert inspect.signature(getattr(SlurmCommands, name)) == inspect.signature(member), name


def test_a_command_that_hangs_is_unavailable(tmp_path: Path) -> None:
    script = tmp_path / "scontrol"
    script.write_text("#!/bin/sh\nexec sleep 30\n")
    script.chmod(0o755)
    slurm = SlurmCommands(env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, deadline_s=0.2)
    with pytest.raises(Unavailable, match=r"within 0\.2 s"):
        slurm.config()


def test_a_command_that_is_missing_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be run"):
        SlurmCommands(env={"PATH": str(tmp_path)}).config()
