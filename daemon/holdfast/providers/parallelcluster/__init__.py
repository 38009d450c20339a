"""Machines of AWS ParallelCluster, which replaces nodes that are down in Slurm."""

from __future__ import annotations

from holdfast.providers.kind import ProviderKind
from holdfast.providers.parallelcluster.settings import ParallelClusterSettings

PROVIDER = ProviderKind(
    "holdfast.providers.parallelcluster.adapter:ParallelClusterProvider",
    ParallelClusterSettings,
    own_cluster=True,
    hears_slurm=True,
    gives_drained_away=True,
    iam={
        "look": ("ec2:DescribeInstances", "ec2:DescribeInstanceStatus"),
        "reboot": ("ec2:RebootInstances",),
    },
)
