"""How DCGM is asked."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.settings.option import option


@dataclass(frozen=True, slots=True)
class DcgmSettings:
    """Table ``[dcgm]`` of ``agent.toml``."""

    dcgmi: str = option("dcgmi", "The command dcgmi.")
    group: int = option(0, "DCGM's group of GPUs whose health is asked; 0: all GPUs.", low=0)
    health_deadline_s: float = option(
        30.0, "A health question without an answer by then is unknown.", low=0.5, high=300
    )
