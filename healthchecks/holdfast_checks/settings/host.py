"""What a site says about the host."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.settings.setting import setting


@dataclass(frozen=True, slots=True)
class HostSettings:
    """Table ``[host]`` of ``agent.toml``."""

    services: tuple[str, ...] = setting((), "Further systemd units that must be active.")
