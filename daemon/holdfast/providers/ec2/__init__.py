"""Machines from EC2: reboot, stop and start, replace, launch."""

from __future__ import annotations

from holdfast.providers.ec2.settings import Ec2Settings
from holdfast.providers.kind import ProviderKind

PROVIDER = ProviderKind("holdfast.providers.ec2.adapter:Ec2Provider", Ec2Settings, needs_cluster_name=True)
