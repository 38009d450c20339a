"""The SageMaker operations that the emulator knows: pure functions of cluster, request and time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.practice.aws import REGION
from holdfast.practice.aws.hyperpod_world import (
    STEADY,
    Cluster,
    HyperpodDelays,
    HyperpodMachine,
    Slot,
    StatusStep,
    reboot_machine,
    replace_machine,
)

DEFAULT_PAGE = 10
"""Nodes per page of ListClusterNodes without MaxResults: few, so that missing pagination shows in tests."""
ACCOUNT = "123456789012"


class SageMakerError(Exception):
    """An error answer: SageMaker's code and message."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code, self.message, self.status = code, message, status


@dataclass(frozen=True, slots=True)
class HyperpodRequest:
    """Context of an operation."""

    cluster: Cluster
    given: Mapping[str, Any]
    delays: HyperpodDelays
    now: float
    effects: list[str]
    """Ids that it really replaced or rebooted are added here."""

    @property
    def seen_at(self) -> float:
        """The time whose state reading operations show."""
        return self.now - self.delays.list_lag_s


def arn(cluster: Cluster) -> str:
    return f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:cluster/{cluster.id}"


def _describe_cluster(request: HyperpodRequest) -> dict[str, Any]:
    cluster = request.cluster
    answer: dict[str, Any] = {
        "ClusterArn": arn(cluster),
        "ClusterName": cluster.name,
        "ClusterStatus": cluster.status,
        "CreationTime": cluster.created_at,
        "InstanceGroups": [_group(cluster, group.name, request.seen_at) for group in cluster.groups],
    }
    if cluster.node_recovery:
        answer["NodeRecovery"] = cluster.node_recovery
    if cluster.continuous:
        answer["NodeProvisioningMode"] = "Continuous"
    return answer


def _group(cluster: Cluster, name: str, now: float) -> dict[str, Any]:
    group = next(group for group in cluster.groups if group.name == name)
    answer: dict[str, Any] = {
        "InstanceGroupName": name,
        "InstanceType": group.instance_type,
        "Status": "InService",
        "CurrentCount": sum(1 for slot, _, step in cluster.shown(now) if slot.group == name and step.status in STEADY),
        "TargetCount": sum(1 for slot in cluster.slots if slot.group == name),
    }
    if cluster.slurm_config:
        answer["SlurmConfig"] = {"NodeType": group.node_type}
    return answer


def _list_nodes(request: HyperpodRequest) -> dict[str, Any]:
    given, cluster = request.given, request.cluster
    wanted = given.get("InstanceGroupNameContains", "")
    shown = [entry for entry in cluster.shown(request.seen_at) if wanted in entry[0].group]
    first, size = int(given.get("NextToken") or 0), int(given.get("MaxResults", DEFAULT_PAGE))
    with_logical = bool(given.get("IncludeNodeLogicalIds")) and cluster.continuous
    answer: dict[str, Any] = {
        "ClusterNodeSummaries": [_summary(cluster, *entry, with_logical) for entry in shown[first : first + size]]
    }
    if first + size < len(shown):
        answer["NextToken"] = str(first + size)
    return answer


def _summary(
    cluster: Cluster, slot: Slot, machine: HyperpodMachine, step: StatusStep, with_logical: bool
) -> dict[str, Any]:
    group = next(group for group in cluster.groups if group.name == slot.group)
    answer: dict[str, Any] = {
        "InstanceGroupName": slot.group,
        "InstanceId": machine.instance_id,
        "InstanceType": group.instance_type,
        "LaunchTime": machine.launched_at,
        "InstanceStatus": {"Status": step.status, "Message": step.message},
    }
    if step.status != "Pending" and cluster.hostnames:
        answer["PrivateDnsHostname"] = f"{slot.host}.{REGION}.compute.internal"
    if with_logical:
        answer["NodeLogicalId"] = slot.logical_id
    return answer


def _describe_node(request: HyperpodRequest) -> dict[str, Any]:
    node_id = request.given.get("NodeId", "")
    for slot, machine, step in request.cluster.shown(request.seen_at):
        if machine.instance_id == node_id:
            details = _summary(request.cluster, slot, machine, step, request.cluster.continuous)
            if step.status != "Pending":
                details["PrivatePrimaryIp"] = slot.address
            return {"NodeDetails": details}
    raise SageMakerError("ResourceNotFound", f"Node {node_id} does not exist in cluster {request.cluster.name}.")


def _replace(request: HyperpodRequest) -> dict[str, Any]:
    def act(slot: Slot, machine: HyperpodMachine) -> None:
        replace_machine(request.cluster, slot, request.delays, request.now)

    return _batch(request, act)


def _reboot(request: HyperpodRequest) -> dict[str, Any]:
    return _batch(request, lambda slot, machine: reboot_machine(machine, request.delays, request.now))


def _batch(request: HyperpodRequest, act: Callable[[Slot, HyperpodMachine], None]) -> dict[str, Any]:
    """Apply the operation to each id separately; failures are part of a 200 response."""
    given, cluster = request.given, request.cluster
    if "NodeLogicalIds" in given:
        raise SageMakerError("ValidationException", "The emulator takes instance ids alone.")
    ids = given.get("NodeIds", [])
    if not ids:
        raise SageMakerError("ValidationException", "Either NodeIds or NodeLogicalIds must be provided.")
    if cluster.status != "InService":
        raise SageMakerError("ValidationException", f"Cluster {cluster.name} is {cluster.status}, not InService.")
    done: list[str] = []
    failed: list[dict[str, str]] = []
    for node_id in ids:
        code = cluster.refusal(node_id) or _obstacle(cluster, node_id, request.now)
        if code:
            failed.append({"NodeId": node_id, "ErrorCode": code, "Message": f"{code}: {node_id}"})
            continue
        slot, machine = cluster.slot_of(node_id) or _never(node_id)
        act(slot, machine)
        done.append(node_id)
    request.effects.extend(done)
    answer = {"Successful": done, "Failed": failed}
    return {name: entries for name, entries in answer.items() if entries}  # the model wants at least one in a list


def _obstacle(cluster: Cluster, node_id: str, now: float) -> str:
    found = cluster.slot_of(node_id)
    step = found[1].shown(now) if found else None
    if found is None or step is None:
        return "InstanceIdNotFound"
    slot, machine = found
    if machine.busy_until > now:
        return "InstanceIdInUse"
    kind = next(group.node_type for group in cluster.groups if group.name == slot.group)
    return "" if step.status in STEADY and kind != "Controller" else "InvalidInstanceStatus"


def _never(node_id: str) -> tuple[Slot, HyperpodMachine]:
    raise SageMakerError("ValidationException", f"{node_id} vanished")


OPERATIONS: Mapping[str, Callable[[HyperpodRequest], dict[str, Any]]] = {
    "DescribeCluster": _describe_cluster,
    "ListClusterNodes": _list_nodes,
    "DescribeClusterNode": _describe_node,
    "BatchReplaceClusterNodes": _replace,
    "BatchRebootClusterNodes": _reboot,
}
READ_ONLY = ("DescribeCluster", "ListClusterNodes", "DescribeClusterNode")
