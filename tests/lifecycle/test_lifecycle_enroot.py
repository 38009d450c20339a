"""The hook with which every enroot container starts: it may add, and must never fail."""

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
    """The mounts and variables that enroot is given; ``said``: the image's environment."""
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


@pytest.mark.skipif(
    shutil.which("systemd-tmpfiles") is None or os.geteuid() != 0, reason="needs root and systemd-tmpfiles"
)
@pytest.mark.parametrize("head", ["no", "of this release", "of an earlier release"])
def test_the_folder_is_there_from_boot_on_and_is_roots_but_for_an_earlier_releases_controller(
    tmp_path: Path, head: str
) -> None:
    """On a head node both files name it: the controller's line counts, whichever is installed last."""
    there = tmp_path / "usr/lib/tmpfiles.d"
    there.mkdir(parents=True)
    shutil.copy(SCRIPTS / "holdfast-node-tmpfiles.conf", there / "run-holdfast.conf")
    if head == "of this release":
        lines = (SCRIPTS / "holdfast-tmpfiles.conf").read_text().splitlines()
        (there / "holdfast.conf").write_text("".join(f"{line}\n" for line in lines if "/run/holdfast" in line))
    elif head == "of an earlier release":
        (there / "holdfast.conf").write_text("d /run/holdfast 2775 games games\n")
    (tmp_path / "etc").mkdir()
    for name in ("passwd", "group"):
        shutil.copy(f"/etc/{name}", tmp_path / "etc" / name)
    command = ["systemd-tmpfiles", f"--root={tmp_path}", "--create"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    folder = tmp_path / "run/holdfast"
    assert folder.is_dir(), done.stderr
    assert folder.stat().st_mode & 0o7777 == (0o2775 if head == "of an earlier release" else 0o755)


def test_an_install_leaves_a_folder_that_is_there_alone() -> None:
    for name in ("lib/units.sh", "build_deb.sh"):
        text = (SCRIPTS / name).read_text()
        (line,) = [line for line in text.splitlines() if "--create run-holdfast.conf" in line]
        assert "/run/holdfast" in line.split("systemd-tmpfiles")[0], "systemd-tmpfiles would make it root's"
