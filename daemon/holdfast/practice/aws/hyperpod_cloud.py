"""Watcher that maps the emulated HyperPod's machines to emulated hosts: a running one boots a host, one that shuts down loses power."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast.practice.aws.cloud import CloudMachine, Hosts, Watcher, asked_reboots
from holdfast.practice.aws.hyperpod_client import HyperpodControl
from holdfast_checks.whole_file import write_whole

_STATES = {"Running": "running", "ShuttingDown": "shutting-down", "NotFound": "terminated"}
"""In all other statuses a host does not change: a machine that failed to start has none, one that failed later has power."""


class PodWatcher(Watcher):
    """One emulated HyperPod cluster. Keeps ``resource_config`` as HyperPod does on the head node: after each change."""

    def __init__(self, control: HyperpodControl, hosts: Hosts, memory: Path, resource_config: Path) -> None:
        super().__init__(hosts, memory)
        self._control = control
        self._resource_config = resource_config

    def machines(self) -> list[CloudMachine]:
        write_resource_config(self._control, self._resource_config)
        return [
            CloudMachine(m["instance_id"], m["node"], _STATES.get(m["status"], "pending"), replacement=not m["first"])
            for m in self._control.machines()
        ]

    def reboots(self) -> dict[str, str]:
        return asked_reboots(self._control, "BatchRebootClusterNodes")


def write_resource_config(control: HyperpodControl, file: Path) -> None:
    """Write the file atomically, and only if it changed."""
    text = json.dumps(control.resource_config(), indent=1) + "\n"
    if file.exists() and file.read_text(encoding="utf-8") == text:
        return
    write_whole(file, text)
