"""Machines as folders: what a fresh Ubuntu of HyperPod and a fresh Amazon Linux of ParallelCluster look like."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "lifecycle-scripts"
OURS = "127.0.77.2"
"""An address that this machine has, in any network namespace whose loopback is up."""

RESOURCE = {
    "ClusterConfig": {
        "ClusterName": "c1",
        "ClusterArn": "arn:aws:sagemaker:us-west-2:111122223333:cluster/abcdefghijkl",
    },
    "ClusterType": "Slurm",
    "SlurmConfig": {"PrimaryControllerIp": "10.1.0.5", "SecondaryControllerIps": ["10.1.0.6"]},
    "InstanceGroups": [
        {"Name": "head", "Instances": [{"InstanceId": "i-00000000000000001", "CustomerIpAddress": "10.1.0.5"}]},
        {
            "Name": "gpu",
            "InstanceType": "p5.48xlarge",
            "Instances": [
                {"InstanceName": "gpu-1", "InstanceId": "i-00000000000000002", "CustomerIpAddress": OURS},
                {"InstanceName": "gpu-2", "InstanceId": "i-00000000000000003", "CustomerIpAddress": "10.1.77.3"},
            ],
        },
    ],
}
PROVISIONING = {
    "version": "1.0.0",
    "workload_manager": "slurm",
    "controller_group": "head",
    "login_group": "login",
    "worker_groups": [{"instance_group_name": "gpu", "partition_name": "dev"}],
}


def write(path: Path, text: str) -> Path:
    """The file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def hyperpod_root(root: Path) -> Path:
    """Ubuntu with HyperPod's files, a shared file system, and a token on it."""
    write(root / "opt/ml/config/resource_config.json", json.dumps(RESOURCE))
    write(root / "etc/os-release", "ID=ubuntu\nVERSION_ID=22.04\n")
    write(root / "fsx/holdfast/tokens/ip-127-0-77-2", "token_of-gpu1\n")
    return root


def amazon_root(root: Path) -> Path:
    """Amazon Linux with ParallelCluster's files, before slurmd has started."""
    write(root / "etc/os-release", 'ID="amzn"\nVERSION_ID="2023"\n')
    write(
        root / "etc/parallelcluster/cfnconfig",
        "stack_name=pc\ncfn_region=eu-west-1\ncfn_node_type=ComputeFleet\n# a comment\n",
    )
    write(root / "etc/parallelcluster/slurm_plugin/slurm_nodename", "queue1-st-p5-1")
    write(root / "sys/devices/virtual/dmi/id/board_asset_tag", "i-0123456789abcdef0\n")
    return root


def own_python(root: Path) -> Path:
    """As if Holdfast were installed there: its place leads to the interpreter that runs the tests."""
    (root / "opt").mkdir(parents=True, exist_ok=True)
    (root / "opt/holdfast").symlink_to(sys.prefix)
    return root


def run_script(
    name: Path,
    root: Path,
    *arguments: str,
    path: Path | None = None,
    prefix: tuple[str, ...] = (),
    settings: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a script by ``sh`` with a separate root and, unless named, no metadata service; ``path`` goes before PATH."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
    environ |= {"HOLDFAST_ROOT": str(root), "HOLDFAST_IMDS_URL": ""} | dict(settings or {})
    if path is not None:
        environ["PATH"] = f"{path}:{environ['PATH']}"
    command = [*prefix, "sh", str(name), *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)


def fake_command(folder: Path, name: str, script: str) -> Path:
    """A command of this name that does what the shell script says; the folder for PATH."""
    made = write(folder / name, f"#!/bin/sh\n{script}\n")
    made.chmod(0o755)
    return folder


def state(root: Path) -> dict[str, tuple[int, bytes]]:
    """Path → mode and content of everything that an installation leaves, but for the log and Python's compiled files."""
    found: dict[str, tuple[int, bytes]] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name.startswith("var/log") or path.suffix == ".pyc":
            continue
        if path.is_symlink():
            found[name] = (0, os.readlink(path).encode())
        elif path.is_file():
            found[name] = (path.stat().st_mode, path.read_bytes())
    return found
