"""Machines of an Auto Scaling group of EC2."""

from __future__ import annotations

from holdfast.providers.asg.settings import AsgSettings
from holdfast.providers.aws import LOOK
from holdfast.providers.kind import ProviderKind

PROVIDER = ProviderKind(
    "holdfast.providers.asg.adapter:AsgProvider",
    AsgSettings,
    needs_cluster_name=True,
    iam={
        "look": (*LOOK, "autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeScalingActivities"),
        "replace": (
            "autoscaling:TerminateInstanceInAutoScalingGroup",
            "autoscaling:SetInstanceHealth",
            "ec2:CreateTags",
        ),
        "reboot": ("ec2:RebootInstances",),
        "report a fault": ("ec2:ReportInstanceStatus",),
    },
)
