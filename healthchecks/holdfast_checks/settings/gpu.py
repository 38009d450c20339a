"""What a site says about its GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.settings.setting import setting


@dataclass(frozen=True, slots=True)
class GpuSettings:
    """Table ``[gpu]`` of ``agent.toml``."""

    persistence_mode: bool = setting(True, "Persistence mode is expected to be on.")
