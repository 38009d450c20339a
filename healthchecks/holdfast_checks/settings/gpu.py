"""What a site says about its GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast_checks.settings.option import option


@dataclass(frozen=True, slots=True)
class GpuSettings:
    """Table ``[gpu]`` of ``agent.toml``."""

    persistence_mode: bool = option(True, "Persistence mode is expected to be on.")
    ecc_mode: bool = option(True, "ECC is expected to be on where the GPU has it.")
    mig_mode: bool = option(False, "MIG is expected to be on.")
    nvlinks: int = option(
        0,
        "Active NVLinks that each GPU must have; 0: as its instance type has, else as the best GPU of the node has.",
        low=0,
        high=36,
    )
    nvlink_recoveries_per_min: float = option(
        5.0,
        "A link that recovers more often than this needs a repair; fewer recoveries are a warning.",
        low=1,
        high=10_000,
    )
    temperature_margin_c: int = option(3, "Fewer degrees until the slowdown are a warning.", low=0, high=50)
    reset_command: tuple[str, ...] = option(
        ("nvidia-smi", "--gpu-reset"), "Resets GPUs; -i and their UUIDs are added, nothing for a whole board."
    )
    reset_stops: tuple[str, ...] = option(
        ("nvidia-dcgm", "dcgm", "dcgm-exporter", "nvidia-persistenced"),
        "Services that hold the GPUs: those that run are stopped for a reset and started again.",
    )
    device_path: Path = option(Path("/dev"), "Folder of the GPUs' device files.")
    allowed_processes: tuple[str, ...] = option(
        ("nv-hostengine", "dcgmi", "nvvs", "nvidia-smi", "nvidia-persiste", "nvidia-cuda-mps"),
        "Programs that may use GPUs while no job is on the node, by a prefix of their names.",
    )
