"""Settings of the HyperPod provider as plain data. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.model.errors import ConfigError
from holdfast_checks.settings.option import option, required

OBSERVE, LEAD = "observe", "lead"
MODES = (OBSERVE, LEAD)
NODE_NAMES = ("address", "instance")
PAGE_MAX = 100
"""ListClusterNodes' largest MaxResults."""


@dataclass(frozen=True, slots=True)
class HyperpodSettings:
    """Settings of the HyperPod provider. Times are in seconds."""

    cluster: str = required("ClusterName: the HyperPod cluster's name or ARN.")
    region: str = required("AWS region.")
    mode: str = option(
        OBSERVE,
        "observe: HyperPod repairs, Holdfast records and times it. lead: Holdfast asks for reboots and replacements, as long as the "
        "cluster's NodeRecovery is None; with Automatic it only watches, whatever stands here.",
    )
    resource_config: str = option(
        "/opt/ml/config/resource_config.json",
        "Helps to join node names and instance ids; empty or absent: the API alone.",
    )
    node_names: str = option(
        "address",
        "Slurm's NodeName: address is HyperPod's usual ip-10-1-2-3, instance the InstanceName of resource_config (<group>-<index>, "
        "a cluster with UseInstanceNames).",
    )
    controller_groups: tuple[str, ...] = option(
        (), "Instance groups of the head nodes on a cluster whose groups carry no SlurmConfig. They are never acted on."
    )
    endpoint_url: str | None = option(
        None, "Another endpoint than AWS's own, or that of AWS_ENDPOINT_URL in the environment."
    )
    connect_timeout_s: float = option(3.0, "Time for a connection to AWS.")
    read_timeout_s: float = option(20.0, "Time for an answer of AWS.")
    attempts: int = option(
        3,
        "Of reading calls, in botocore's standard retry mode. A call that acts is tried once: there is no client token.",
    )
    page_size: int = option(PAGE_MAX, "ListClusterNodes' MaxResults, 1 to 100.")

    def __post_init__(self) -> None:
        for name in ("cluster", "region"):
            if not getattr(self, name):
                raise ConfigError(f"provider hyperpod: {name} is empty")
        if self.mode not in MODES:
            raise ConfigError(f"provider hyperpod: mode {self.mode!r} is none of: {', '.join(MODES)}")
        if self.node_names not in NODE_NAMES:
            raise ConfigError(f"provider hyperpod: node_names {self.node_names!r} is none of: {', '.join(NODE_NAMES)}")
        if self.attempts < 1:
            raise ConfigError(f"provider hyperpod: attempts is {self.attempts}, at least 1 is needed")
        if not 1 <= self.page_size <= PAGE_MAX:
            raise ConfigError(f"provider hyperpod: page_size is {self.page_size}, not between 1 and {PAGE_MAX}")
