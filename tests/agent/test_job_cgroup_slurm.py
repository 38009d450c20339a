"""A real Slurm's cgroups (v1): its own directories are root's, the path names the job and its user, its tasks are known as its own."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.agent.node.job_cgroup import CgroupJob, job_of_cgroup
from holdfast.agent.node.processes import SlurmNode, started_by_slurm
from holdfast.practice import Practice
from support.practice import eventually

FREEZER = Path("/sys/fs/cgroup/freezer")
pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(
        os.geteuid() != 0 or not os.access(FREEZER / "cgroup.procs", os.W_OK), reason="needs root and cgroups of v1"
    ),
]
GAMES = pwd.getpwnam("games").pw_uid


@pytest.fixture
def cleaned() -> Iterator[None]:
    """slurmd leaves its own cgroup behind."""
    yield
    for top in FREEZER.glob("slurm_n*"):
        eventually(lambda top=top: _removed(top), within_s=20)  # type: ignore[misc]


def _removed(top: Path) -> bool:
    """False while a process is exiting."""
    try:
        for folder, _folders, _files in os.walk(top, topdown=False):
            Path(folder).rmdir()
    except OSError:
        return False
    return True


@pytest.mark.usefixtures("cleaned")
def test_the_cgroup_of_a_users_job_names_it(make_practice: Callable[..., Practice]) -> None:
    practice = make_practice(nodes=1)
    text = practice.slurm_conf.read_text()
    assert "ProctrackType=proctrack/linuxproc" in text
    practice.slurm_conf.write_text(text.replace("proctrack/linuxproc", "proctrack/cgroup"))
    (practice.folder / "etc" / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n")
    practice.up()
    job_id = practice.sbatch("exec sleep 60", uid=GAMES)
    node = SlurmNode("n1", practice.folder / "run" / "slurmd.n1.pid", "scontrol", practice.slurm_conf)
    eventually(lambda: job_id in node.job_pids(), within_s=20)
    pids = node.job_pids()[job_id]
    assert {job_of_cgroup(pid) for pid in pids} == {CgroupJob(job_id, GAMES)}
    assert any(started_by_slurm(pid) for pid in pids)
    step = next(Path(f"{FREEZER}{line.split(':')[2]}") for line in _cgroups(min(pids)) if ":freezer:" in line)
    assert step.name.startswith("step_")
    assert [folder.stat().st_uid for folder in (step, *step.parents[:3])] == [GAMES, 0, 0, 0]
    practice.command("scancel", str(job_id))


def _cgroups(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cgroup").read_text().splitlines()
