"""Parsing of HyperPod's answers: nodes, the cluster's repair settings, results of a batch. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from holdfast.model.errors import Rejected, Unavailable
from holdfast.model.machine import Instance, Notice, NoticeKind
from holdfast.providers.hyperpod.names import ResourceConfig, address_of_host, node_name

STATES = {
    "Running": "running",
    "Failure": "running",  # not reported as off; healthy is False
    "Pending": "pending",
    "SystemUpdating": "pending",
    "DeepHealthCheckInProgress": "pending",
    "ShuttingDown": "shutting-down",
    "NotFound": "terminated",
}
"""InstanceStatus.Status → the port's state. Unlisted ones are ``pending``, on which Holdfast does not act."""
STEADY = ("Running", "Failure")
"""Statuses in which a node accepts a replacement or a reboot."""
GOING = ("ShuttingDown", "NotFound")


@dataclass(frozen=True, slots=True)
class PodNode:
    """One machine as ListClusterNodes shows it. ``message`` is evidence only: it may be of an earlier attempt."""

    instance_id: str
    group: str
    status: str
    message: str = ""
    launched_at: datetime | None = None
    address: str = ""
    node: str = ""
    """Slurm node name, empty while it is not known."""

    def as_instance(self) -> Instance:
        return Instance(
            instance_id=self.instance_id,
            node=self.node,
            state=STATES.get(self.status, "pending"),
            healthy=False if self.status == "Failure" else None,
            launched_at=self.launched_at,
            address=self.address,
        )

    def as_notice(self) -> Notice | None:
        """HyperPod reports the machine as failed. It does not report since when."""
        if self.status != "Failure":
            return None
        text = " ".join(self.message.split())[:300] or "InstanceStatus is Failure"
        return Notice(self.instance_id, self.node, NoticeKind.IMPAIRED, self.status, text)


def read_summary(raw: Mapping[str, Any]) -> PodNode:
    """A ClusterNodeSummary or ClusterNodeDetails, without the Slurm name."""
    status, launched_at = raw.get("InstanceStatus", {}), raw.get("LaunchTime")
    return PodNode(
        instance_id=raw.get("InstanceId", ""),
        group=raw.get("InstanceGroupName", ""),
        status=status.get("Status", ""),
        message=status.get("Message", ""),
        launched_at=launched_at.astimezone(UTC) if launched_at else None,
        address=raw.get("PrivatePrimaryIp", "") or address_of_host(raw.get("PrivateDnsHostname", "")),
    )


def named(node: PodNode, config: ResourceConfig, addresses: Mapping[str, str], style: str) -> PodNode:
    """The node with address and Slurm name, as far as the API, its details or the file know them."""
    address = node.address or addresses.get(node.instance_id, "") or config.addresses.get(node.instance_id, "")
    name = config.names.get(node.instance_id, "") if style == "instance" else node_name(address)
    return replace(node, address=address, node=name)


def serving(nodes: Sequence[PodNode], name: str) -> PodNode | None:
    """The machine that has the node's name and is not shutting down. Raises Unavailable when several have it."""
    found = [node for node in nodes if node.node == name and node.status not in GOING]
    if len(found) > 1:
        ids = ", ".join(sorted(node.instance_id for node in found))
        raise Unavailable(f"HyperPod lists several machines as {name}: {ids}; nothing is done until it lists one")
    return found[0] if found else None


class BatchVerdict(StrEnum):
    """Result of a batch call for one id."""

    ACCEPTED = "accepted"
    IN_USE = "in_use"
    """Another operation is running on the node already."""
    BUSY = "busy"
    """Its status does not permit the operation now."""
    GONE = "gone"
    """HyperPod does not know the id (any more)."""
    FAILED = "failed"
    """A HyperPod error for this node; the effect is unknown."""
    UNKNOWN = "unknown"
    """No answer, an answer without this id, or an unknown code: check the actual state before repeating."""


VERDICTS = {
    "InstanceIdInUse": BatchVerdict.IN_USE,
    "InvalidInstanceStatus": BatchVerdict.BUSY,
    "InstanceIdNotFound": BatchVerdict.GONE,
    "InternalServerError": BatchVerdict.FAILED,
}


@dataclass(frozen=True, slots=True)
class BatchResult:
    verdict: BatchVerdict
    text: str = ""
    """HyperPod's code and message, or the error of the call."""


def read_batch(asked: Sequence[str], answer: Mapping[str, Any]) -> dict[str, BatchResult]:
    """Result per requested id of a 200 response. An id in ``Failed`` failed, even if it is in ``Successful`` too."""
    failed = {entry.get("NodeId"): entry for entry in answer.get("Failed", [])}
    accepted = set(answer.get("Successful", []))
    return {instance_id: _result(failed.get(instance_id), instance_id in accepted) for instance_id in asked}


def _result(failure: Mapping[str, Any] | None, accepted: bool) -> BatchResult:
    if failure is not None:
        code = str(failure.get("ErrorCode", ""))
        return BatchResult(VERDICTS.get(code, BatchVerdict.UNKNOWN), f"{code}: {failure.get('Message', '')}")
    if accepted:
        return BatchResult(BatchVerdict.ACCEPTED)
    return BatchResult(BatchVerdict.UNKNOWN, "HyperPod's answer does not mention it")


@dataclass(frozen=True, slots=True)
class PodCluster:
    """Fields of DescribeCluster that decide who acts."""

    status: str
    node_recovery: str
    """``Automatic`` also when the answer has no value: it is HyperPod's default."""
    continuous: bool
    head_groups: frozenset[str]
    """Groups whose SlurmConfig has the node type Controller."""

    @property
    def repairs_itself(self) -> bool:
        """Whether HyperPod leaves repairs to others: only the exact value ``None`` means that."""
        return self.node_recovery != "None"


def read_cluster(raw: Mapping[str, Any]) -> PodCluster:
    heads = (
        group.get("InstanceGroupName", "")
        for group in raw.get("InstanceGroups", [])
        if group.get("SlurmConfig", {}).get("NodeType") == "Controller"
    )
    return PodCluster(
        status=raw.get("ClusterStatus", ""),
        node_recovery=raw.get("NodeRecovery") or "Automatic",
        continuous=raw.get("NodeProvisioningMode") == "Continuous",
        head_groups=frozenset(heads),
    )


def check_ready(cluster: PodCluster) -> None:
    """Raises Unavailable while HyperPod works on the whole cluster, Rejected when it cannot take an action at all."""
    if cluster.status == "InService":
        return
    if cluster.status in ("Failed", "Deleting"):
        raise Rejected(f"the HyperPod cluster is {cluster.status}: only InService takes a reboot or a replacement")
    raise Unavailable(
        f"the HyperPod cluster is {cluster.status or 'in no known status'}: ask again when it is InService"
    )
