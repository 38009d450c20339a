# ruff: noqa: RUF009 - setting() is dataclasses.field() with a sentence
"""What a site says about its GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast_checks.settings.setting import setting


@dataclass(frozen=True, slots=True)
class GpuSettings:
    """Table ``[gpu]`` of ``agent.toml``."""

    persistence_mode: bool = setting(True, "Persistence mode is expected to be on.")
    ecc_mode: bool = setting(True, "ECC is expected to be on where the GPU has it.")
    mig_mode: bool = setting(False, "MIG is expected to be on.")
    nvlinks: int = setting(
        0,
        "Active NVLinks that each GPU must have; 0: as its instance type has, else as the best GPU of the node has.",
        low=0,
        high=36,
    )
    nvlink_recoveries_per_min: float = setting(
        5.0, "A link that recovers more often is to be repaired; fewer recoveries are a warning.", low=1, high=10_000
    )
    temperature_margin_c: int = setting(3, "Fewer degrees until the slowdown are a warning.", low=0, high=50)
    reset_command: tuple[str, ...] = setting(
        ("nvidia-smi", "--gpu-reset"), "Resets GPUs; -i and their UUIDs are added, nothing for a whole board."
    )
    reset_stops: tuple[str, ...] = setting(
        ("nvidia-dcgm", "dcgm", "dcgm-exporter", "nvidia-persistenced"),
        "Services that hold the GPUs: those that run are stopped for a reset and started again.",
    )
    device_path: Path = setting(Path("/dev"), "Folder of the GPUs' device files.")
    allowed_processes: tuple[str, ...] = setting(
        ("nv-hostengine", "dcgmi", "nvvs", "nvidia-smi", "nvidia-persiste", "nvidia-cuda-mps"),
        "Programs that may use GPUs while no job is on the node, by the begin of their names.",
    )
