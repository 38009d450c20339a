"""The practice's RebootProgram under an old and a new Slurm: all of slurmd's environment, or nothing but the node's name."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast.practice.cluster.slurmconf import NODE_VARIABLE, reboot


@pytest.mark.parametrize("env", [{NODE_VARIABLE: "n3", "PATH": "/bin"}, {"SLURM_NODE_NAME": "n3"}])
def test_it_knows_its_node_and_brings_its_own_environment(tmp_path: Path, env: Mapping[str, str]) -> None:
    script = tmp_path / "reboot"
    seen = tmp_path / "python"
    seen.write_text('#!/bin/sh\necho "$PATH|$SLURM_CONF|$*"\n')
    seen.chmod(0o755)
    script.write_text(reboot(tmp_path, str(seen), {"PATH": "/opt/it's/bin:/bin", "SLURM_CONF": "/c"}))
    said = subprocess.run(["/bin/sh", script], env=dict(env), capture_output=True, text=True, check=True).stdout
    assert said == f"/opt/it's/bin:/bin|/c|-m holdfast.practice.cluster.reboot {tmp_path} n3\n"
