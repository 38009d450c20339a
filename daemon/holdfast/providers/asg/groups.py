"""Auto Scaling groups: reading them, and whether one would replace a machine. Pure, except for the API calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.model.errors import NotFound, Rejected, Unavailable
from holdfast.providers.aws.errors import translated
from holdfast.providers.one_line import one_line

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_autoscaling.type_defs import AutoScalingGroupTypeDef

SERVING_STATES = ("InService", "Pending")
"""Prefixes of the lifecycle states of members that count: also ``Pending:Wait`` and ``Pending:Proceed``."""
NEEDED = {"terminate": ("Launch",), "unhealthy": ("Launch", "Terminate", "ReplaceUnhealthy")}
"""Way of replacing → the group's processes that must not be suspended."""


@dataclass(frozen=True, slots=True)
class AutoScalingMember:
    state: str
    """Its lifecycle state: ``InService``, ``Standby``, ``Terminating:Wait`` …"""
    healthy: bool

    @property
    def counts(self) -> bool:
        return self.state.startswith(SERVING_STATES)

    @property
    def going(self) -> bool:
        """The group is terminating it, or will: nothing needs to be ordered again."""
        return self.state.startswith("Terminat") or not self.healthy


@dataclass(frozen=True, slots=True)
class AutoScalingGroup:
    """The relevant fields of an Auto Scaling group."""

    name: str
    desired: int
    members: Mapping[str, AutoScalingMember] = field(default_factory=dict)
    """Instance id → member."""
    suspended: frozenset[str] = frozenset()

    def cannot_launch(self, way: str) -> str:
        """Why the group would not replace a machine that ends; empty: it would."""
        stopped = [process for process in NEEDED[way] if process in self.suspended]
        if stopped:
            return f"Auto Scaling group {self.name} has {', '.join(stopped)} suspended: resume it, or nothing takes the place"
        count = sum(member.counts for member in self.members.values())
        if count > self.desired:
            return f"Auto Scaling group {self.name} wants {self.desired} machines and has {count}: one that goes is not replaced"
        return ""

    def cannot_replace(self, instance_id: str, way: str) -> str:
        """Why this machine cannot be replaced through the group; empty: it can, or is being replaced already."""
        member = self.members.get(instance_id)
        if member is None:
            return f"{instance_id} is no member of Auto Scaling group {self.name} (any more)"
        if member.going:
            return ""
        if not member.counts:
            return f"{instance_id} is {member.state} in Auto Scaling group {self.name}: put it in service, or end it by hand"
        return self.cannot_launch(way)


def read_group(raw: AutoScalingGroupTypeDef) -> AutoScalingGroup:
    return AutoScalingGroup(
        raw["AutoScalingGroupName"],
        raw["DesiredCapacity"],
        {
            member["InstanceId"]: AutoScalingMember(
                str(member["LifecycleState"]), member["HealthStatus"] != "Unhealthy"
            )
            for member in raw.get("Instances", [])
        },
        frozenset(process.get("ProcessName", "") for process in raw.get("SuspendedProcesses", [])),
    )


class Groups:
    """The calls of EC2 Auto Scaling."""

    def __init__(self, client: AutoScalingClient, names: tuple[str, ...]) -> None:
        self._client, self._names = client, names

    def all(self) -> dict[str, AutoScalingGroup]:
        """The groups of the settings, by name. Raises Rejected for one that is not there."""
        with translated("DescribeAutoScalingGroups"):
            pages = self._client.get_paginator("describe_auto_scaling_groups").paginate(
                AutoScalingGroupNames=list(self._names)
            )
            found = {
                raw["AutoScalingGroupName"]: read_group(raw) for page in pages for raw in page["AutoScalingGroups"]
            }
        missing = [name for name in self._names if name not in found]
        if missing:
            raise Rejected(f"there is no Auto Scaling group {', '.join(missing)}")
        return found

    def end(self, instance_id: str, way: str) -> None:
        """Have the group replace a member; its desired capacity stays."""
        try:
            if way == "unhealthy":
                with translated("SetInstanceHealth"):
                    self._client.set_instance_health(
                        InstanceId=instance_id, HealthStatus="Unhealthy", ShouldRespectGracePeriod=False
                    )
                return
            with translated("TerminateInstanceInAutoScalingGroup"):
                self._client.terminate_instance_in_auto_scaling_group(
                    InstanceId=instance_id, ShouldDecrementDesiredCapacity=False
                )
        except Rejected as error:
            if "ScalingActivityInProgress" not in str(error):
                raise
            raise Unavailable(f"{instance_id}: the group is busy: {error}") from error

    def failure(self, name: str) -> str:
        """The newest scaling activity's reason if it failed; empty: it did not."""
        try:
            with translated("DescribeScalingActivities"):
                answer = self._client.describe_scaling_activities(AutoScalingGroupName=name, MaxRecords=1)
        except NotFound:
            return ""
        newest = answer["Activities"][0] if answer["Activities"] else None
        if newest is None or newest["StatusCode"] != "Failed":
            return ""
        return one_line(newest.get("StatusMessage", "") or newest["Cause"])
