"""Where the cloud's metadata about this machine is found."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.settings.option import option


@dataclass(frozen=True, slots=True)
class CloudSettings:
    """Table ``[cloud]`` of ``agent.toml``."""

    imds: str = option(
        "auto",
        'EC2\'s instance metadata: "auto" asks 169.254.169.254 where the firmware names Amazon EC2; a URL; "": it is not asked.',
    )
    jobs_use_role: bool = option(
        False, "Jobs of this node may use the machine's role: `cloud.metadata` does not check whether users reach it."
    )
