"""Parsing of EC2's answers about machines: pure functions, no calls."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from typing import TYPE_CHECKING, Any

from holdfast.model.machine import Instance, MetadataOptions
from holdfast.providers.aws.tags import TagKeys

if TYPE_CHECKING:
    from mypy_boto3_ec2.literals import ReportInstanceReasonCodesType
    from mypy_boto3_ec2.type_defs import InstanceStatusTypeDef, InstanceTypeDef

CANDIDATE, SERVING, RETIRED = "candidate", "serving", "retired"
LIVE_STATES = ("pending", "running", "stopping", "stopped")
GONE_STATES = ("shutting-down", "terminated")
ASG_TAG = "aws:autoscaling:groupName"
"""Tag that EC2 Auto Scaling sets on the machines of a group, which would replace each one that we terminate."""


def tags_of(raw: InstanceTypeDef) -> dict[str, str]:
    return {tag.get("Key", ""): tag.get("Value", "") for tag in raw.get("Tags", [])}


def state_of(raw: InstanceTypeDef) -> str:
    """EC2's name for the state; ``pending`` when the answer has none (a launch just accepted)."""
    return str(raw.get("State", {}).get("Name", "pending"))


def read_instance(raw: InstanceTypeDef, keys: TagKeys, healthy: bool | None = None) -> Instance:
    """EC2's description as the port's Instance."""
    tags, launched_at = tags_of(raw), raw.get("LaunchTime")
    return Instance(
        instance_id=raw.get("InstanceId", ""),
        node=tags.get(keys.node, ""),
        state=state_of(raw),
        healthy=healthy,
        launched_at=launched_at.astimezone(UTC) if launched_at else None,
        address=raw.get("PrivateIpAddress", ""),
        incident=tags.get(keys.incident, ""),
    )


def read_metadata_options(raw: InstanceTypeDef) -> MetadataOptions | None:
    """None: EC2 does not report it, or the machine has no metadata."""
    options = raw.get("MetadataOptions", {})
    tokens, hops = options.get("HttpTokens"), options.get("HttpPutResponseHopLimit")
    if tokens is None or hops is None or options.get("HttpEndpoint") == "disabled":
        return None
    return MetadataOptions(tokens == "required", hops)


def serves(raw: InstanceTypeDef, keys: TagKeys, node: str) -> bool:
    """Whether the machine is the node's own now: live, its name, and neither a candidate nor retired."""
    tags = tags_of(raw)
    role = tags.get(keys.role, SERVING)
    return state_of(raw) in LIVE_STATES and tags.get(keys.node) == node and role not in (CANDIDATE, RETIRED)


def in_group(raw: InstanceTypeDef) -> str:
    """Name of the Auto Scaling group that the machine belongs to; empty: none."""
    return tags_of(raw).get(ASG_TAG, "")


_REASONS: tuple[tuple[ReportInstanceReasonCodesType, tuple[str, ...]], ...] = (
    ("unresponsive", ("silent", "unreachable", "no answer", "does not answer", "dead", "hangs", "hung")),
    ("performance-network", ("efa", "nic ", "network", "infiniband", "link down", "packet")),
    ("performance-instance-store", ("nvme", "instance store", "i/o error", "disk")),
)


def reason_codes(text: str) -> list[ReportInstanceReasonCodesType]:
    """ReportInstanceStatus' ReasonCodes for a fault; ``other`` where EC2 has no code, such as for a GPU."""
    low = f"{text.lower()} "
    codes = [code for code, words in _REASONS if any(word in low for word in words)]
    return codes or ["other"]


def judge_status(status: InstanceStatusTypeDef) -> bool | None:
    """Healthy by EC2's status checks: False once one is impaired, True when both are ok, else not known (yet).

    ``initializing``, ``insufficient-data`` and ``not-applicable`` say nothing, good or bad."""
    said: list[Mapping[str, Any]] = [
        status.get("SystemStatus", {}), status.get("InstanceStatus", {}), status.get("AttachedEbsStatus", {}),
    ]  # fmt: skip
    words = [part.get("Status") for part in said]
    if "impaired" in words:
        return False
    return True if words[:2] == ["ok", "ok"] else None
