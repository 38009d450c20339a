"""The control endpoint's verbs ``/_practice/hyperpod/…``; documented in docs/providers.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from holdfast.practice.aws.hyperpod_calls import SageMakerError, arn
from holdfast.practice.aws.hyperpod_world import (
    STATUSES,
    Cluster,
    HyperpodMachine,
    Slot,
    reboot_machine,
    replace_machine,
    set_status,
)

if TYPE_CHECKING:
    from holdfast.practice.aws.emulator import Emulator

_Handler = Callable[["Emulator", Mapping[str, Any]], Any]


def _cluster(emulator: Emulator, data: Mapping[str, Any]) -> Cluster:
    try:
        return emulator.hyperpod.cluster(data["cluster"])
    except SageMakerError as error:
        raise ValueError(error.message) from error


def _place(emulator: Emulator, data: Mapping[str, Any]) -> tuple[Cluster, Slot, HyperpodMachine]:
    cluster = _cluster(emulator, data)
    found = cluster.slot_of(data["instance_id"])
    if found is None:
        raise ValueError(f"cluster {cluster.name} has no {data['instance_id']}")
    return cluster, *found


def _make(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    cluster = emulator.hyperpod.make(data["cluster"], data)
    return {slot.host: slot.machines[-1].instance_id for slot in cluster.slots}


def _settings(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    """Change ``node_recovery`` (empty: the answer leaves it out), ``status`` or ``continuous``."""
    cluster = _cluster(emulator, data)
    for key in ("node_recovery", "status", "continuous"):
        if key in data:
            setattr(cluster, key, data[key])
    emulator.hyperpod.save()
    return {}


def _delays(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    hyperpod = emulator.hyperpod
    hyperpod.delays = replace(hyperpod.delays, **{key: float(value) for key, value in data.items()})
    return asdict(hyperpod.delays)


def _status(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    _, _, machine = _place(emulator, data)
    if data["status"] not in STATUSES:
        raise ValueError(f"status {data['status']!r} is none of {', '.join(STATUSES)}")
    set_status(machine, data["status"], data.get("message", ""), data.get("for_s"), emulator.hyperpod.now())
    emulator.hyperpod.save()
    return {}


def _refuse(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    cluster, _, machine = _place(emulator, data)
    cluster.refusals.append((machine.instance_id, data["code"], int(data.get("times", 1))))
    return {}


def _doom(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    _, slot, _ = _place(emulator, data)
    slot.doom = data["message"]
    return {}


def _repair(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    """Simulate HyperPod's health monitoring with NodeRecovery Automatic; this is not an API call."""
    cluster, slot, machine = _place(emulator, data)
    if slot.machines[-1] is not machine:
        raise ValueError(f"{machine.instance_id} has been replaced already")
    if data["action"] == "reboot":
        reboot_machine(machine, emulator.hyperpod.delays, emulator.hyperpod.now())
    elif data["action"] == "replace":
        replace_machine(cluster, slot, emulator.hyperpod.delays, emulator.hyperpod.now())
    else:
        raise ValueError(f"action {data['action']!r} is neither reboot nor replace")
    emulator.hyperpod.save()
    return {}


def _machines(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    """The actual state behind the API, by which hosts are powered on and off."""
    now = emulator.hyperpod.now()
    shown = [
        (slot, machine, machine.shown(now), number)
        for slot in _cluster(emulator, data).slots
        for number, machine in enumerate(slot.machines)
        if machine.launched_at <= now
    ]
    return [
        {
            "instance_id": machine.instance_id,
            "node": slot.logical_id,
            "status": step.status if step is not None else "NotFound",
            "first": number == 0,
        }
        for slot, machine, step, number in shown
    ]


def _resource_config(emulator: Emulator, data: Mapping[str, Any]) -> Any:
    """``/opt/ml/config/resource_config.json`` as a node created now would have it."""
    cluster = _cluster(emulator, data)
    nodes = {group.name: [slot for slot in cluster.slots if slot.group == group.name] for group in cluster.groups}
    head = next(
        (slot for group in cluster.groups if group.node_type == "Controller" for slot in nodes[group.name]), None
    )
    return {
        "ClusterType": "Slurm",
        "ClusterConfig": {"ClusterName": cluster.name, "ClusterArn": arn(cluster)},
        "SlurmConfig": {"PrimaryControllerIp": head.address if head else "", "SecondaryControllerIps": []},
        "InstanceGroups": [
            {
                "Name": group.name,
                "InstanceType": group.instance_type,
                "Instances": [
                    {
                        "InstanceName": slot.logical_id,
                        "InstanceId": slot.machines[-1].instance_id,
                        "AgentIpAddress": "169.254.0.2",
                        "CustomerIpAddress": slot.address,
                    }
                    for slot in nodes[group.name]
                ],
            }
            for group in cluster.groups
        ],
    }


HYPERPOD_VERBS: dict[str, _Handler] = {
    "POST hyperpod/cluster": _make,
    "POST hyperpod/settings": _settings,
    "POST hyperpod/delays": _delays,
    "POST hyperpod/status": _status,
    "POST hyperpod/refuse": _refuse,
    "POST hyperpod/doom": _doom,
    "POST hyperpod/repair": _repair,
    "GET hyperpod/machines": _machines,
    "GET hyperpod/resource_config": _resource_config,
}
