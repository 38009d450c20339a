"""Emulated HyperPod clusters: slots that keep their name and address while their machines are replaced.

Every machine has its future states as dated steps, so that its state depends only on the time, and a list may show an
older state than the batch calls use (HyperPod's list shows changes late)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

STATUSES = ("Running", "Failure", "Pending", "ShuttingDown", "SystemUpdating", "DeepHealthCheckInProgress", "NotFound")
"""botocore's ClusterInstanceStatus."""
AGE_S = 3600.0
"""Age of a new cluster's machines: old enough that a delayed list shows them too."""
STEADY = ("Running", "Failure")
"""Statuses in which a node accepts a replacement or a reboot; in others the answer is InvalidInstanceStatus."""


@dataclass(slots=True)
class HyperpodDelays:
    """How long each phase takes, in seconds. AWS's notes say 20 to 30 minutes for a replacement, 1 to 3 for a reboot."""

    shutting_down_s: float = 0.5
    pending_s: float = 1.0
    deep_check_s: float = 0.0
    """0: no deep health check on start."""
    rebooting_s: float = 0.7
    list_lag_s: float = 0.0
    """Delay of ListClusterNodes and DescribeClusterNode."""


@dataclass(slots=True)
class StatusStep:
    at: float
    status: str
    message: str = ""


@dataclass(slots=True)
class HyperpodMachine:
    instance_id: str
    launched_at: float
    path: list[StatusStep]
    gone_at: float | None = None
    busy_until: float = 0.0
    """An operation on it runs until this time: InstanceIdInUse."""

    def shown(self, now: float) -> StatusStep | None:
        """Its state at a time; None: not created yet, or gone."""
        if self.gone_at is not None and self.gone_at <= now:
            return None
        return next((step for step in reversed(self.path) if step.at <= now), None)

    def go(self, now: float, *steps: StatusStep) -> None:
        """Take these steps instead of what was planned from now on."""
        self.path = [step for step in self.path if step.at <= now] + list(steps)


@dataclass(slots=True)
class Slot:
    """One node of a group: logical id and address outlive the machines."""

    group: str
    index: int
    address: str
    machines: list[HyperpodMachine]
    doom: str = ""
    """Message with which the next replacement ends in Failure."""

    @property
    def logical_id(self) -> str:
        return f"{self.group}-{self.index}"

    @property
    def host(self) -> str:
        return "ip-" + self.address.replace(".", "-")


@dataclass(slots=True)
class InstanceGroup:
    name: str
    instance_type: str
    node_type: str
    """Controller, Login or Compute."""


@dataclass(slots=True)
class Cluster:
    name: str
    id: str
    groups: list[InstanceGroup]
    slots: list[Slot]
    node_recovery: str = "None"
    continuous: bool = False
    slurm_config: bool = True
    """False: an older cluster, whose groups do not say which one is the controller's."""
    hostnames: bool = True
    """False: no PrivateDnsHostname anywhere; the address is in DescribeClusterNode alone."""
    status: str = "InService"
    created_at: float = 0.0
    made: int = 0
    """Machines created so far, from which the next id is made."""
    refusals: list[tuple[str, str, int]] = field(default_factory=list)
    """Armed entries for ``Failed``: instance id, error code, times left."""

    def slot_of(self, instance_id: str) -> tuple[Slot, HyperpodMachine] | None:
        """The slot and machine of an id, also of a machine that is gone."""
        for slot in self.slots:
            for machine in slot.machines:
                if machine.instance_id == instance_id:
                    return slot, machine
        return None

    def shown(self, now: float) -> Iterator[tuple[Slot, HyperpodMachine, StatusStep]]:
        """Machines in a list, in order of group and index."""
        for slot in self.slots:
            for machine in slot.machines:
                step = machine.shown(now)
                if step is not None:
                    yield slot, machine, step

    def next_id(self) -> str:
        self.made += 1
        return "i-" + hashlib.sha256(f"{self.name}/{self.made}".encode()).hexdigest()[:17]

    def refusal(self, instance_id: str) -> str:
        """The armed error code for this id, counted down; empty: none."""
        for index, (target, code, times) in enumerate(self.refusals):
            if target == instance_id:
                self.refusals[index : index + 1] = [(target, code, times - 1)] if times > 1 else []
                return code
        return ""


def make_cluster(name: str, data: Mapping[str, Any], number: int, now: float) -> Cluster:
    """A cluster in service with running nodes. ``data``: groups (name, count, type, node_type) and cluster settings."""
    groups = [
        InstanceGroup(g["name"], g.get("type", "ml.p5.48xlarge"), g.get("node_type", "Compute")) for g in data["groups"]
    ]
    cluster = Cluster(
        name,
        hashlib.sha256(name.encode()).hexdigest()[:12],
        groups,
        [],
        node_recovery=data.get("node_recovery", "None"),
        continuous=bool(data.get("continuous", False)),
        slurm_config=bool(data.get("slurm_config", True)),
        hostnames=bool(data.get("hostnames", True)),
        created_at=now,
    )
    for given in data["groups"]:
        for index in range(1, int(given["count"]) + 1):
            order = len(cluster.slots)
            address = f"10.{number}.{order // 200}.{order % 200 + 4}"  # AWS keeps a subnet's first four addresses
            machine = HyperpodMachine(cluster.next_id(), now - AGE_S, [StatusStep(now - AGE_S, "Running")])
            cluster.slots.append(Slot(given["name"], index, address, [machine]))
    return cluster


def replace_machine(cluster: Cluster, slot: Slot, delays: HyperpodDelays, now: float) -> str:
    """Terminate the slot's machine and create the next one. Returns its id."""
    old = slot.machines[-1]
    gone_at = now + delays.shutting_down_s
    old.go(now, StatusStep(now, "ShuttingDown"))
    old.gone_at = old.busy_until = gone_at
    ready_at = gone_at + delays.pending_s
    path = [StatusStep(gone_at, "Pending")]
    if delays.deep_check_s:
        path.append(StatusStep(ready_at, "DeepHealthCheckInProgress"))
        ready_at += delays.deep_check_s
    path.append(StatusStep(ready_at, "Failure", slot.doom) if slot.doom else StatusStep(ready_at, "Running"))
    slot.doom = ""
    slot.machines.append(HyperpodMachine(cluster.next_id(), gone_at, path, busy_until=ready_at))
    return slot.machines[-1].instance_id


def reboot_machine(machine: HyperpodMachine, delays: HyperpodDelays, now: float) -> None:
    """Mark an operation for a while; the status does not change (what HyperPod shows meanwhile is not documented)."""
    machine.busy_until = now + delays.rebooting_s


def set_status(machine: HyperpodMachine, status: str, message: str, for_s: float | None, now: float) -> None:
    """Show this status from now on, or for a time and then ``Running`` (a software update, a deep health check)."""
    steps = [StatusStep(now, status, message)]
    if for_s is not None:
        steps.append(StatusStep(now + for_s, "Running"))
    machine.go(now, *steps)


def cluster_from_json(data: Mapping[str, Any]) -> Cluster:
    """The inverse of ``dataclasses.asdict``."""
    slots = [
        Slot(**{**slot, "machines": [_machine(machine) for machine in slot["machines"]]}) for slot in data["slots"]
    ]
    groups = [InstanceGroup(**group) for group in data["groups"]]
    refusals = [(str(i), str(code), int(times)) for i, code, times in data["refusals"]]
    return Cluster(**{**data, "slots": slots, "groups": groups, "refusals": refusals})


def _machine(data: Mapping[str, Any]) -> HyperpodMachine:
    return HyperpodMachine(**{**data, "path": [StatusStep(**step) for step in data["path"]]})
