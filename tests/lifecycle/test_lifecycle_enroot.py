"""The hook that every enroot container starts with: it may add, and must never fail."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lifecycle.lifecycle_support import SCRIPTS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("bash") is None, reason="no bash, which enroot is written in"),
]
HOOK = SCRIPTS / "holdfast-enroot-hook.sh"
MOUNT = "{0} {0} none x-create=dir,bind,ro,nosuid,nodev,private,nofail,silent\n"


def run(tmp_path: Path, said: str = "", **environment: str) -> tuple[str, str]:
    """What enroot is told to mount and to set; ``said``: the image's environment."""
    agent = tmp_path / "agent"
    hook = tmp_path / "hook.sh"
    hook.write_text(HOOK.read_text().replace("folder=/run/holdfast", f"folder={agent}"))
    mounts, environ = tmp_path / "fstab", tmp_path / "environment"
    mounts.write_text("")
    environ.write_text(said)
    done = subprocess.run(
        ["bash", str(hook)],
        env={"PATH": os.environ["PATH"], "ENROOT_MOUNTS": str(mounts), "ENROOT_ENVIRON": str(environ), **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return mounts.read_text(), environ.read_text()


def test_a_node_without_an_agent_is_left_as_it_is(tmp_path: Path) -> None:
    assert run(tmp_path) == ("", "")


def test_the_agents_folder_is_mounted(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    mounts, environ = run(tmp_path, "A=1\n", SLURM_JOB_ID="7", SLURM_STEP_ID="0", HOLDFAST_CHECKPOINT_DIR="/c")
    assert mounts == MOUNT.format(tmp_path / "agent")
    assert environ == "A=1\n", "pyxis: each task has its own"


def test_a_container_started_by_hand_knows_its_job(tmp_path: Path) -> None:
    slurm = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_RESTART_COUNT": "2", "SLURM_JOB_ID_HET_GROUP_1": "8"}
    more = {
        "HOLDFAST_CHECKPOINT_DIR": "/c d",
        "HOLDFAST_BAD": "a\nLD_PRELOAD=/x",
        "HOLDFAST_SAVE_S": "",
        "SLURM_CONF": "/s",
    }
    _mounts, environ = run(tmp_path, "SLURM_JOB_ID=9\n", **slurm, **more)
    assert environ.splitlines() == [
        "SLURM_JOB_ID=9",
        "SLURM_RESTART_COUNT=2",
        "SLURM_PROCID=0",
        "SLURM_JOB_ID_HET_GROUP_1=8",
        "HOLDFAST_CHECKPOINT_DIR=/c d",
    ]


def test_what_cannot_be_written_keeps_no_container_from_starting(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    done = subprocess.run(
        ["bash", str(HOOK)],
        env={"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "HOLDFAST_X": "1"},
        cwd=tmp_path,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0
