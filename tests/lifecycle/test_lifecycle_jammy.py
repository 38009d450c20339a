"""on_create.sh in a real Ubuntu 22.04 (HyperPod's system, Python 3.10) without a network: cached in .cache, made by debootstrap."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lifecycle.lifecycle_support import PROVISIONING, SCRIPTS, hyperpod_root, state, write

CACHE = SCRIPTS.parent / ".cache/ubuntu-22.04"
MIRROR = "http://archive.ubuntu.com/ubuntu"
pytestmark = [
    pytest.mark.soak,  # half a minute, and a minute more for the first
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("debootstrap") is None, reason="needs root and debootstrap"),
]


def call(*command: str | Path, **environ: str) -> str:
    done = subprocess.run(command, env=os.environ | environ, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout + done.stderr


@pytest.fixture
def ubuntu(tmp_path: Path) -> Path:
    """A HyperPod-like root with the bundle in /root/holdfast-bundle."""
    if not (CACHE / "complete").exists():
        shutil.rmtree(CACHE, ignore_errors=True)
        packages = "--include=python3,systemd,libsqlite3-0,libffi8"
        call("debootstrap", "--no-check-gpg", "--variant=minbase", packages, "jammy", CACHE, MIRROR)
        (CACHE / "complete").touch()
    root = tmp_path / "root"
    call("cp", "-a", CACHE, root)
    hyperpod_root(root)
    write(root / "dev/kmsg", "")  # a kernel that is silent
    site = tmp_path / "site"
    write(site / "holdfast.conf", "HOLDFAST_TOKEN_FROM=file:/fsx/holdfast/tokens/{node}\n")
    write(site / "provisioning_parameters.json", json.dumps(PROVISIONING))
    builder = (SCRIPTS / "build_bundle.sh", "--out", root / "root", "--site", site)
    call("sh", *builder, PYTHON=sys.executable, UBUNTU_UNSIGNED="yes")
    return root


def inside(root: Path, script: str) -> str:
    """In the root, in a network namespace with nothing but its loopback."""
    steps = f"mount -t proc proc {root}/proc && ip link set lo up && exec chroot {root} bash -c {json.dumps(script)}"
    return call("unshare", "-nmp", "--fork", "sh", "-c", steps)


def test_from_nothing_to_an_agent_that_runs_and_twice_the_same(ubuntu: Path) -> None:
    assert "Python 3.10" in inside(ubuntu, "python3 -V")
    assert "ends: status=0" in inside(ubuntu, "/root/holdfast-bundle/on_create.sh")
    assert "Python 3.11" in inside(ubuntu, "/opt/holdfast/bin/python -V")
    before = {part: state(ubuntu / part) for part in ("opt", "etc")}
    inside(ubuntu, "/root/holdfast-bundle/on_create.sh")
    assert {part: state(ubuntu / part) for part in ("opt", "etc")} == before
    said = inside(ubuntu, "timeout 5 /opt/holdfast/bin/python -m holdfast.agent; exit 0")
    assert "node=ip-127-0-77-2 event=started" in said
    assert "instance=i-00000000000000002" in said
