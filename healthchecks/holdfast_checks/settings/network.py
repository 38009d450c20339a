"""What a site says about its network devices."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.settings.setting import setting


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Table ``[network]`` of ``agent.toml``."""

    expected_efa: int = setting(0, "EFA devices that this node must have; 0: as its instance type has.", low=0, high=64)
