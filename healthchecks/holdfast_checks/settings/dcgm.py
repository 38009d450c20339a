"""How DCGM is asked."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.settings.setting import setting


@dataclass(frozen=True, slots=True)
class DcgmSettings:
    """Table ``[dcgm]`` of ``agent.toml``."""

    dcgmi: str = setting("dcgmi", "The command dcgmi.")
