"""IAM actions that the AWS providers need, by purpose. Standard library only.

The IAM policies under ``docs/iam/`` are checked against this table, and the table against the calls that reach the emulator."""

from __future__ import annotations

from collections.abc import Mapping

Features = Mapping[str, tuple[str, ...]]
"""Purpose → IAM actions."""

_LOOK = (
    "ec2:DescribeInstances",
    "ec2:DescribeInstanceStatus",
    "ec2:DescribeSpotInstanceRequests",
    "ec2:DescribeCapacityReservations",
)

AWS_ACTIONS: Mapping[str, Features] = {
    "ec2": {
        "look": _LOOK,
        "launch": ("ec2:RunInstances", "ec2:CreateTags", "iam:PassRole"),
        "hand over": ("ec2:CreateTags",),
        "terminate": ("ec2:TerminateInstances",),
        "reboot": ("ec2:RebootInstances",),
        "stop and start": ("ec2:StopInstances", "ec2:StartInstances", "ec2:CreateTags"),
        "report a fault": ("ec2:ReportInstanceStatus",),
    },
    "asg": {
        "look": (*_LOOK, "autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeScalingActivities"),
        "replace": (
            "autoscaling:TerminateInstanceInAutoScalingGroup",
            "autoscaling:SetInstanceHealth",
            "ec2:CreateTags",
        ),
        "reboot": ("ec2:RebootInstances",),
        "report a fault": ("ec2:ReportInstanceStatus",),
    },
    "hyperpod": {
        "look": ("sagemaker:DescribeCluster", "sagemaker:ListClusterNodes", "sagemaker:DescribeClusterNode"),
        "replace": ("sagemaker:BatchReplaceClusterNodes",),
        "reboot": ("sagemaker:BatchRebootClusterNodes",),
    },
}
"""Provider → purpose → IAM actions. ``iam:PassRole`` only where the launch template has an instance profile;
StartInstances of a machine with encrypted volumes also needs the key's grants."""


def actions_of(provider: str) -> frozenset[str]:
    """Every IAM action that a provider may use; empty for one that uses none."""
    return frozenset(action for actions in AWS_ACTIONS.get(provider, {}).values() for action in actions)
