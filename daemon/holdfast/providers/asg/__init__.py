"""Machines of an Auto Scaling group of EC2."""

from __future__ import annotations

from holdfast.providers.asg.settings import AsgSettings
from holdfast.providers.kind import ProviderKind

PROVIDER = ProviderKind("holdfast.providers.asg.adapter:AsgProvider", AsgSettings, needs_cluster_name=True)
