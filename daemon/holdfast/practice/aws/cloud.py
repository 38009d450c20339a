"""Watcher that maps the emulator's instances to emulated hosts: a running replacement boots one, a terminated one loses power.

It plays the role of cloud-init and the hypervisor. The practice polls one ``CloudWatcher``, or runs this module as a process."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from holdfast import logs
from holdfast.model.errors import Unavailable
from holdfast.practice.aws.client import EmulatorControl
from holdfast.practice.aws.seed import CLUSTER_TAG, INCIDENT_TAG, NODE_TAG, open_ec2
from holdfast_checks.whole_file import write_whole

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

log = logging.getLogger("holdfast.practice.aws.cloud")
OFF_STATES = ("shutting-down", "terminated", "stopping", "stopped")
GONE_STATES = ("shutting-down", "terminated")


class Hosts(Protocol):
    """Actions on the practice's emulated hosts. A call that raises Unavailable is repeated at the next poll."""

    def boot(self, instance_id: str, node: str) -> None:
        """A new machine is running: start a new host (new boot id, new GPU UUIDs) that will serve the node's name."""
        ...

    def power_off(self, instance_id: str, node: str) -> None:
        """The machine is off: stop the host of this instance, if there is still one."""
        ...

    def gone(self, instance_id: str, node: str) -> None:
        """The machine, which was off before, is being terminated: its name is free."""
        ...

    def reboot(self, instance_id: str, node: str) -> None:
        """EC2 was asked to reboot the machine: reboot its host with a new boot id."""
        ...


@dataclass(frozen=True, slots=True)
class CloudMachine:
    """One instance as the watcher sees it."""

    instance_id: str
    node: str
    state: str
    replacement: bool
    """Launched for an incident; the hosts of all others were started by the practice."""


class Watcher(ABC):
    """Watcher that compares the provider's machines with the booted hosts, and calls ``hosts`` for each difference.

    Its actions are stored in ``memory``, so that a restarted watcher boots nothing twice."""

    def __init__(self, hosts: Hosts, memory: Path | None = None) -> None:
        self._hosts = hosts
        self._memory = memory
        known = json.loads(memory.read_text(encoding="utf-8")) if memory is not None and memory.exists() else {}
        self._on: dict[str, bool] = known.get("on", {})
        """Instance id → whether its host has power."""
        self._rebooted: list[str] = known.get("rebooted", [])
        self._gone: list[str] = known.get("gone", [])

    @abstractmethod
    def machines(self) -> list[CloudMachine]:
        """All machines as they are now. Raises ClientError, BotoCoreError, Unavailable."""

    @abstractmethod
    def reboots(self) -> dict[str, str]:
        """Every reboot that was ever requested: unique key → instance id. Raises as :meth:`machines`."""

    def poll(self) -> None:
        """Compare once. If the emulator does not answer, the next poll tries again."""
        try:
            machines = self.machines()
            reboots = {key: i for key, i in self.reboots().items() if key not in self._rebooted}
        except (ClientError, BotoCoreError, Unavailable) as error:
            log.warning("event=cloud_unreachable error=%s", error)
            return
        for machine in machines:
            self._follow(machine)
        running = {m.instance_id: m.node for m in machines if m.state == "running"}
        for key, instance_id in reboots.items():
            self._reboot(key, instance_id, running.get(instance_id))
        self._remember()

    def run(self, stop: threading.Event, interval_s: float = 0.25) -> None:
        """Poll until ``stop`` is set."""
        while not stop.wait(interval_s):
            self.poll()

    def _follow(self, machine: CloudMachine) -> None:
        had_power = self._on.get(machine.instance_id, not machine.replacement)
        try:
            if machine.state == "running" and not had_power:
                log.info("event=boot node=%s instance=%s", machine.node, machine.instance_id)
                self._hosts.boot(machine.instance_id, machine.node)
                self._on[machine.instance_id] = True
            elif machine.state in OFF_STATES and had_power:
                log.info("event=power_off node=%s instance=%s", machine.node, machine.instance_id)
                self._hosts.power_off(machine.instance_id, machine.node)
                self._on[machine.instance_id] = False
            elif machine.state in GONE_STATES and machine.instance_id not in self._gone:
                self._hosts.gone(machine.instance_id, machine.node)
                self._gone.append(machine.instance_id)
        except Unavailable as error:
            log.warning("event=host_not_ready node=%s instance=%s error=%s", machine.node, machine.instance_id, error)

    def _reboot(self, key: str, instance_id: str, node: str | None) -> None:
        """Reboot the host, if it is still running."""
        try:
            if node is not None:
                log.info("event=reboot node=%s instance=%s", node, instance_id)
                self._hosts.reboot(instance_id, node)
            self._rebooted.append(key)
        except Unavailable as error:
            log.warning("event=host_not_ready node=%s instance=%s error=%s", node, instance_id, error)

    def _remember(self) -> None:
        if self._memory is None:
            return
        write_whole(self._memory, json.dumps({"on": self._on, "rebooted": self._rebooted, "gone": self._gone}))


class CloudWatcher(Watcher):
    """EC2's instances of one cluster."""

    def __init__(self, endpoint: str, cluster: str, hosts: Hosts, memory: Path | None = None) -> None:
        super().__init__(hosts, memory)
        self._ec2 = open_ec2(endpoint)
        self._control = EmulatorControl(endpoint)
        self._cluster = cluster

    def machines(self) -> list[CloudMachine]:
        pages = self._ec2.get_paginator("describe_instances").paginate(
            Filters=[{"Name": f"tag:{CLUSTER_TAG}", "Values": [self._cluster]}]
        )
        return [_machine(raw) for page in pages for r in page["Reservations"] for raw in r.get("Instances", [])]

    def reboots(self) -> dict[str, str]:
        return asked_reboots(self._control, "RebootInstances")


def asked_reboots(control: EmulatorControl, action: str) -> dict[str, str]:
    """Reboots by the emulator's log: time and id → id. The key outlives a restart of the emulator."""
    calls: Iterable[Mapping[str, Any]] = control.calls(action)
    return {f"{call['at']} {i}": i for call in calls for i in call["effects"]}


def _machine(raw: InstanceTypeDef) -> CloudMachine:
    tags = {tag.get("Key"): tag.get("Value", "") for tag in raw.get("Tags", [])}
    state = str(raw.get("State", {}).get("Name", ""))
    return CloudMachine(raw.get("InstanceId", ""), tags.get(NODE_TAG, ""), state, INCIDENT_TAG in tags)


class LogHosts:
    """Hosts that only log what would be done, to run the watcher alone."""

    def boot(self, instance_id: str, node: str) -> None:
        log.info("event=would_boot node=%s instance=%s", node, instance_id)

    def power_off(self, instance_id: str, node: str) -> None:
        log.info("event=would_power_off node=%s instance=%s", node, instance_id)

    def gone(self, instance_id: str, node: str) -> None:
        log.info("event=would_free node=%s instance=%s", node, instance_id)

    def reboot(self, instance_id: str, node: str) -> None:
        log.info("event=would_reboot node=%s instance=%s", node, instance_id)


def main(argv: list[str] | None = None, hosts: Hosts | None = None) -> int:
    """Run a watcher until SIGTERM. ``FOLDER/endpoint`` has the emulator's address, ``FOLDER/cloud.json`` is the memory."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.practice.aws.cloud", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="the emulator's folder (see client.start_emulator)")
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--interval-s", type=float, default=0.25)
    options = parser.parse_args(argv)
    logs.set_up()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    endpoint = (options.folder / "endpoint").read_text(encoding="utf-8").strip()
    watcher = CloudWatcher(endpoint, options.cluster, hosts or LogHosts(), options.folder / "cloud.json")
    watcher.run(stop, options.interval_s)
    return 0


if __name__ == "__main__":
    sys.exit(main())
