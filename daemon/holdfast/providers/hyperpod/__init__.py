"""Machines of a SageMaker HyperPod cluster."""

from __future__ import annotations

from holdfast.providers.hyperpod.settings import HyperpodSettings
from holdfast.providers.kind import ProviderKind

PROVIDER = ProviderKind(
    "holdfast.providers.hyperpod.adapter:HyperpodProvider",
    HyperpodSettings,
    own_cluster=True,
    iam={
        "look": ("sagemaker:DescribeCluster", "sagemaker:ListClusterNodes", "sagemaker:DescribeClusterNode"),
        "replace": ("sagemaker:BatchReplaceClusterNodes",),
        "reboot": ("sagemaker:BatchRebootClusterNodes",),
    },
    leave_repairs='aws sagemaker update-cluster … --node-recovery None, and controller.toml: [provider] mode = "lead"',
)
