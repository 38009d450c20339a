"""Machines from EC2: reboot, stop and start, replace, launch."""

from __future__ import annotations

from holdfast.providers.aws import LOOK
from holdfast.providers.ec2.settings import Ec2Settings
from holdfast.providers.kind import ProviderKind

PROVIDER = ProviderKind(
    "holdfast.providers.ec2.adapter:Ec2Provider",
    Ec2Settings,
    needs_cluster_name=True,
    iam={
        "look": LOOK,
        "launch": ("ec2:RunInstances", "ec2:CreateTags", "iam:PassRole"),
        "hand over": ("ec2:CreateTags",),
        "terminate": ("ec2:TerminateInstances",),
        "reboot": ("ec2:RebootInstances",),
        "stop and start": ("ec2:StopInstances", "ec2:StartInstances", "ec2:CreateTags"),
        "report a fault": ("ec2:ReportInstanceStatus",),
    },
)
"""``iam:PassRole`` only where the launch template has an instance profile; StartInstances of a machine with encrypted volumes also
needs the key's grants."""
