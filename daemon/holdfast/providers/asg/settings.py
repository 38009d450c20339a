"""Settings of the provider ``asg``. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.model.errors import ConfigError
from holdfast.providers.aws.tags import TagKeys
from holdfast.providers.kind import MAX_DEADLINE_S
from holdfast_checks.settings.option import option, required

WAYS = ("terminate", "unhealthy")


@dataclass(frozen=True, slots=True)
class AsgSettings:
    """Settings of the provider ``asg``. Times are in seconds."""

    cluster: str = required("Value of the cluster tag that a machine gets together with its node's name.")
    region: str = required("AWS region.")
    groups: tuple[str, ...] = required(
        "Names of the Auto Scaling groups: their members are the only machines that are ever touched."
    )
    replace_by: str = option(
        "terminate",
        "terminate: TerminateInstanceInAutoScalingGroup; unhealthy: SetInstanceHealth, which obeys the group's own maintenance "
        "policy and needs its process ReplaceUnhealthy.",
    )
    endpoint_url: str | None = option(
        None, "Another endpoint than AWS's own, or that of AWS_ENDPOINT_URL in the environment."
    )
    tags: TagKeys = option(TagKeys(), "Keys of the tags by which nodes and orders are known.")
    connect_timeout_s: float = option(3.0, "Time for a connection to AWS.")
    read_timeout_s: float = option(20.0, "Time for an answer of AWS.")
    attempts: int = option(
        3, "Of botocore's standard retry mode (throttling, 5xx, lost connections), the first try included."
    )
    consistency_wait_s: float = option(5.0, "How long EC2 may not show what was just done (eventual consistency).")
    patience_s: float = option(
        30.0,
        "How long one call waits for the old machine's end and the group's new one before it says so; the caller asks again.",
    )
    block_notice_s: float = option(
        21600.0, "How long before the end of a Capacity Block its machines are reported as going."
    )
    page_size: int = option(1000, "DescribeInstances' largest MaxResults; it allows 5 to 1000.")

    def __post_init__(self) -> None:
        for name in ("cluster", "region", "groups"):
            if not getattr(self, name):
                raise ConfigError(f"provider asg: {name} is empty")
        if isinstance(self.groups, str) or not all(self.groups):
            raise ConfigError("provider asg: groups is a list of names")
        if self.replace_by not in WAYS:
            raise ConfigError(f"provider asg: replace_by is {self.replace_by!r}, not one of: {', '.join(WAYS)}")
        if self.attempts < 1:
            raise ConfigError(f"provider asg: attempts is {self.attempts}, at least 1 is needed")
        for name in ("patience_s", "consistency_wait_s"):
            if not 0 <= getattr(self, name) <= MAX_DEADLINE_S:
                raise ConfigError(f"provider asg: {name} is {getattr(self, name):g}, not between 0 and 600")
