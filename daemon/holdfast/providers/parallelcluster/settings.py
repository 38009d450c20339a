"""Settings of the ParallelCluster provider as plain data. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.model.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ParallelClusterSettings:
    """What the ParallelCluster provider needs to know. Times are seconds."""

    cluster: str
    """Name of the cluster in ParallelCluster: the value of the tag ``parallelcluster:cluster-name``."""
    region: str
    ec2_reboot: bool = False
    """Let EC2 reboot a machine where Slurm cannot. clustermgtd knows only reboots that Slurm ordered: one that keeps slurmd away for
    longer than SlurmdTimeout it answers with another machine. Needs ``ec2:RebootInstances``, which the head node has not by default."""
    endpoint_url: str | None = None
    """None: AWS's own, or AWS_ENDPOINT_URL from the environment."""
    connect_timeout_s: float = 3.0
    read_timeout_s: float = 20.0
    attempts: int = 3
    """Of botocore's standard retry mode (throttling, 5xx, lost connections), the first try included."""
    patience_s: float = 45.0
    """How long one attempt waits for a dynamic node to be off, so that it can be brought back (Slurm's SuspendTimeout is 120 s there)."""

    def __post_init__(self) -> None:
        for name in ("cluster", "region"):
            if not getattr(self, name):
                raise ConfigError(f"provider parallelcluster: {name} is empty")
        if self.attempts < 1:
            raise ConfigError(f"provider parallelcluster: attempts is {self.attempts}, at least 1 is needed")
