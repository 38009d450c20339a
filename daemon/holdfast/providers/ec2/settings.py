"""Settings of the provider ``ec2`` as plain data. Standard library only."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.model.errors import ConfigError
from holdfast.providers.aws.tags import TagKeys
from holdfast.providers.kind import MAX_DEADLINE_S
from holdfast_checks.settings.option import option, required

MARKETS = ("", "spot", "capacity-block")
"""EC2's InstanceMarketOptions.MarketType; empty is on demand."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One way to get a machine; offers are tried in order. An empty field leaves the choice to the launch template."""

    instance_type: str = ""
    subnet_id: str = ""
    """Not together with a template that has network interfaces (EFA): EC2 refuses it. Name another template instead."""
    launch_template: str = ""
    """Name or id, instead of the provider's own."""
    version: str = ""
    market: str = ""
    """One of ``MARKETS``."""
    capacity_reservation_id: str = ""

    def __post_init__(self) -> None:
        if self.market not in MARKETS:
            raise ConfigError(
                f"market {self.market!r} of an offer is invalid; known: on demand (empty), spot, capacity-block"
            )

    def __str__(self) -> str:
        parts = (self.instance_type, self.subnet_id, self.launch_template, self.version, self.market)
        return "/".join(p for p in (*parts, self.capacity_reservation_id) if p) or "launch template"


@dataclass(frozen=True, slots=True)
class Ec2Settings:
    """Settings of the EC2 provider. Times are in seconds."""

    cluster: str = required("Value of the cluster tag: only machines with it are ever touched.")
    region: str = required("AWS region.")
    launch_template: str = required("Name or id (lt-…).")
    version: str = option("$Default", "Version of the launch template.")
    offers: tuple[Offer, ...] = option(
        (Offer(),), "Ways to get a machine, tried in order; none: the launch template as it is."
    )
    endpoint_url: str | None = option(
        None, "Another endpoint than AWS's own, or that of AWS_ENDPOINT_URL in the environment."
    )
    tags: TagKeys = option(TagKeys(), "Keys of the tags by which Holdfast knows its machines.")
    launch_first: bool = option(
        True, "False where capacity is a full reservation or Capacity Block: there the old machine must go first."
    )
    connect_timeout_s: float = option(3.0, "Time for a connection to AWS.")
    read_timeout_s: float = option(20.0, "Time for an answer of AWS; RunInstances may take more than 10 s.")
    attempts: int = option(
        3, "Of botocore's standard retry mode (throttling, 5xx, lost connections), the first try included."
    )
    consistency_wait_s: float = option(
        5.0, "How long an id that was never seen may be unknown to EC2 before that is believed (eventual consistency)."
    )

    page_size: int = option(1000, "DescribeInstances' largest MaxResults; it allows 5 to 1000.")
    patience_s: float = option(
        30.0,
        "How long one call waits for a machine that is changing state (off, stopped) before it says so; the caller asks again.",
    )
    force_stop_s: float = option(
        600.0, "A machine that is stopping for longer is stopped by force: a broken host may never finish on its own."
    )
    block_margin_s: float = option(
        7200.0,
        "An offer whose Capacity Block ends sooner is passed over: EC2 ends its machines from 30 minutes before the end on.",
    )
    block_notice_s: float = option(
        21600.0, "How long before the end of a Capacity Block its machines are reported as going."
    )

    def __post_init__(self) -> None:
        for name in ("cluster", "region", "launch_template"):
            if not getattr(self, name):
                raise ConfigError(f"provider ec2: {name} is empty")
        if not self.offers:
            raise ConfigError("provider ec2: offers is empty; leave it out to use the launch template as it is")
        if self.attempts < 1:
            raise ConfigError(f"provider ec2: attempts is {self.attempts}, at least 1 is needed")
        for name in ("patience_s", "force_stop_s", "block_margin_s", "block_notice_s", "consistency_wait_s"):
            if not 0 <= getattr(self, name) <= 7 * 86400:
                raise ConfigError(f"provider ec2: {name} is {getattr(self, name):g}, not between 0 and a week")
        if self.patience_s > MAX_DEADLINE_S:
            raise ConfigError(f"provider ec2: patience_s is {self.patience_s:g}, at most {MAX_DEADLINE_S:g}")


_TEMPLATE_ID = re.compile(r"lt-[0-9a-f]{8,17}")


def is_template_id(text: str) -> bool:
    """Whether a launch template is given by id rather than by name."""
    return _TEMPLATE_ID.fullmatch(text) is not None
