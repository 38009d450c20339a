"""Emulated hosts of the practice's data center, following the provider's machines. Run by :mod:`data_centre`.

Each machine has a folder ``machines/INSTANCE``; ``nodes/nK`` is a link to the one that serves the node now. A replacement boots while
the old machine still runs: its agent can be validated, but its slurmd starts only after the old machine is off and the name is free."""

from __future__ import annotations

import json
import logging
import shutil
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path

import tomli_w

from holdfast.practice.aws import imds_state
from holdfast.practice.cluster.cluster import Practice
from holdfast.practice.cluster.deliveries import install_next
from holdfast.practice.cluster.host import PracticeHost
from holdfast.practice.hardware import host as host_files
from holdfast.practice.hardware import nvidia_smi
from holdfast.practice.hardware.network import DEFAULT_ROUTE, FI_INFO
from holdfast.practice.hardware.path import PYTHON
from holdfast.practice.nvml.build import build, environment
from holdfast_checks.whole_file import write_whole

log = logging.getLogger("holdfast.practice.cluster.data_centre")
INSTALL_S = 1.5
"""How long a machine of the rack is down while its hardware is exchanged."""


def agent_argv(machine: Path) -> list[str]:
    return [sys.executable, "-m", "holdfast.agent", "--config", str(machine / "agent.toml")]


def write_agent(practice: Practice, node: str) -> None:
    """Install the agent on the node's machine and start it."""
    folder = (practice.folder / "nodes" / node).resolve()
    write_agent_config(practice, node, folder, url=practice.relay_url(node))
    practice.machine(node).set_agent(agent_argv(folder))


def write_agent_config(practice: Practice, node: str, folder: Path, *, url: str, serves: bool = True) -> None:
    """The agent's configuration file. A machine that does not serve yet has no slurmd: the node's name still belongs to the old one."""
    library = build(Path.home() / ".cache" / "holdfast" / "nvml")
    for name in ("run", "agent"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "run").chmod(0o755)
    host = PracticeHost(folder, node, practice.spec.gpus)
    table = {
        "node": node,
        "controllers": [url],
        "token_file": str(practice.folder / "etc" / f"token.{node}"),
        "state_dir": str(folder / "agent"),
        "run_dir": str(folder / "run"),
        "kmsg_path": str(host.kmsg),
        "boot_id_path": str(host.boot_id_file),
        "instance_id_path": str(folder / "instance_id"),
        "sysfs_path": str(host.sysfs),
        "pstore_path": str(folder / "pstore"),
        "kernel": {"pstore_archive": str(folder / "pstore-archive")},
        "nvml_library": str(library),
        "gpu_count": practice.spec.gpus,
        **_heartbeat(practice),
        "slurmd_pid_file": str(practice.folder / "run" / f"slurmd.{node}.pid"),
        "slurm_conf": str(practice.slurm_conf),
        "disk_paths": [str(practice.folder)],
        "nvml_env": environment(library, host.nvml_state),
        "cloud": {"imds": imds_state.url_of(practice.folder, folder), "jobs_use_role": True},  # it is on loopback
        "dcgm": {"dcgmi": str(folder / "dcgmi")},
        "active": {"python": str(folder / PYTHON), "device": "plain", "seconds": 0.1},
        "gpu": {"reset_command": [str(folder / nvidia_smi.COMMAND), "--gpu-reset"], "reset_stops": []},
        "host": host_files.agent_settings(folder),
        "network": {
            "fi_info": str(folder / FI_INFO),
            "default_route_device": DEFAULT_ROUTE,
            "slurmd_spool": str(practice.folder / "spool" / node),
            "memlock_gib": 0.0,  # the limits are those of this machine, not of the emulated one
        },
        "disabled_checks": [] if serves else ["host.slurmd"],
    }
    write_whole(folder / "agent.toml", tomli_w.dumps(table))


def _heartbeat(practice: Practice) -> dict[str, float]:
    """The site's heartbeat interval; empty: set by the controller."""
    file = practice.folder / "etc" / "heartbeat_s"
    return {"heartbeat_s": float(file.read_text())} if file.exists() else {}


class Hosting:
    """Implements :class:`holdfast.practice.aws.cloud.Hosts`."""

    def __init__(self, practice: Practice) -> None:
        self._practice = practice
        self._machines = practice.folder / "machines"
        self._machines.mkdir(exist_ok=True)
        self._machines.chmod(0o755)

    def name_machines(self, instances: Mapping[str, str]) -> None:
        """Give the first hardware of every node its instance id (before anything is started)."""
        for node, instance_id in instances.items():
            link = self._link(node)
            link.rename(self._machines / instance_id)
            write_whole(self._machines / instance_id / "instance_id", f"{instance_id}\n")
            link.symlink_to(self._machines / instance_id)

    def boot(self, instance_id: str, node: str) -> None:
        folder = self._machines / instance_id
        if not folder.exists():
            serving = self._host(self._serving(node), node)
            fresh = self._host(folder, node)
            fresh.create()
            write_whole(folder / "generation", f"{serving.generation}\n")
            log.info(
                "event=delivery instance=%s %s", instance_id, install_next(self._practice.folder, fresh, instance_id)
            )
        elif self._off(folder):  # stopped and started: another host under the same instance
            (folder / "off").unlink()
            install_next(self._practice.folder, self._host(folder, node), instance_id)
            self._take_over(instance_id, node)
            return
        if self._off(self._serving(node)):
            self._take_over(instance_id, node)
            return
        write_agent_config(
            self._practice,
            node,
            folder,
            url=self._practice.controller_url,
            serves=False,
        )
        self._practice.processes.start(self._candidate(instance_id), agent_argv(folder), cwd=folder, reaper=True)

    def power_off(self, instance_id: str, node: str) -> None:
        machine = self._practice.machine(node)
        if self._serving(node) == self._machines / instance_id and self._practice.processes.alive(machine.ghost):
            return  # it has lost power, and keeps its name until it is terminated
        self._free(instance_id, node)

    def gone(self, instance_id: str, node: str) -> None:
        folder = self._machines / instance_id
        if folder.exists() and not self._off(folder):
            self._free(instance_id, node)

    def _free(self, instance_id: str, node: str) -> None:
        """Stop the host; a machine that waits for its name takes it."""
        folder = self._machines / instance_id
        self._practice.processes.kill(self._candidate(instance_id))
        (folder / "off").touch()
        if self._serving(node) != folder:
            return
        self._practice.machine(node).power_off()
        for other in sorted(self._machines.iterdir()):
            if self._practice.processes.alive(self._candidate(other.name)) and self._node_of(other) == node:
                self._take_over(other.name, node)
                return

    def reboot(self, instance_id: str, node: str) -> None:
        if self._serving(node) == self._machines / instance_id:
            self._practice.machine(node).reboot()

    def exchange(self, instance_id: str, node: str) -> None:
        """Exchange the hardware in place, under the same id: the machine goes down and comes back with other hardware."""
        machine = self._practice.machine(node)
        machine.power_off()
        time.sleep(INSTALL_S)
        folder = self._serving(node)
        log.info(
            "event=delivery instance=%s %s", instance_id, install_next(self._practice.folder, machine.host, instance_id)
        )
        shutil.rmtree(folder / "agent", ignore_errors=True)
        self._take_over(instance_id, node)

    def _take_over(self, instance_id: str, node: str) -> None:
        """The name is free: the new machine's slurmd starts under it."""
        folder = self._machines / instance_id
        self._practice.processes.stop(self._candidate(instance_id))
        fresh = self._link(node).with_suffix(".new")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(folder)
        fresh.replace(self._link(node))
        write_agent_config(self._practice, node, folder, url=self._practice.relay_url(node))
        machine = self._practice.machine(node)
        machine.forget_old_run()
        write_whole(folder / "agent.json", json.dumps({"argv": agent_argv(folder), "env": {}}) + "\n")
        machine.power_on(rebooted=True)
        log.info("event=take_over node=%s instance=%s", node, instance_id)

    def _link(self, node: str) -> Path:
        return self._practice.folder / "nodes" / node

    def _serving(self, node: str) -> Path:
        return self._link(node).resolve()

    def _off(self, folder: Path) -> bool:
        return (folder / "off").exists()

    @staticmethod
    def _node_of(machine: Path) -> str:
        return str(tomllib.loads((machine / "agent.toml").read_text())["node"])

    def _host(self, folder: Path, node: str) -> PracticeHost:
        return PracticeHost(folder, node, self._practice.spec.gpus)

    def _candidate(self, instance_id: str) -> str:
        return f"agent.{instance_id}"
