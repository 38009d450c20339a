"""Settings of the ParallelCluster provider as plain data. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.model.errors import ConfigError
from holdfast_checks.settings.option import option, required


@dataclass(frozen=True, slots=True)
class ParallelClusterSettings:
    """Settings of the ParallelCluster provider. Times are in seconds."""

    cluster: str = required(
        "Name of the cluster in ParallelCluster: the value of the tag parallelcluster:cluster-name."
    )
    region: str = required("AWS region.")
    ec2_reboot: bool = option(
        False,
        "Let EC2 reboot a machine where Slurm cannot. clustermgtd knows only reboots that Slurm ordered: one that keeps slurmd away "
        "for longer than SlurmdTimeout it answers with another machine. Needs ec2:RebootInstances, which the head node has not by "
        "default.",
    )
    endpoint_url: str | None = option(
        None, "Another endpoint than AWS's own, or that of AWS_ENDPOINT_URL in the environment."
    )
    connect_timeout_s: float = option(3.0, "Time for a connection to AWS.")
    read_timeout_s: float = option(20.0, "Time for an answer of AWS.")
    attempts: int = option(
        3, "Of botocore's standard retry mode (throttling, 5xx, lost connections), the first try included."
    )
    patience_s: float = option(
        45.0,
        "How long one attempt waits for a dynamic node to be off, so that it can be brought back (Slurm's SuspendTimeout is 120 s "
        "there).",
    )

    def __post_init__(self) -> None:
        for name in ("cluster", "region"):
            if not getattr(self, name):
                raise ConfigError(f"provider parallelcluster: {name} is empty")
        if self.attempts < 1:
            raise ConfigError(f"provider parallelcluster: attempts is {self.attempts}, at least 1 is needed")
