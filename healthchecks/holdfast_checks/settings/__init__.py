"""What a site says about its nodes: one dataclass a domain, each the table of that name in ``agent.toml``. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast_checks.settings.active import ActiveSettings
from holdfast_checks.settings.cloud import CloudSettings
from holdfast_checks.settings.custom import CustomSettings
from holdfast_checks.settings.dcgm import DcgmSettings
from holdfast_checks.settings.gpu import GpuSettings
from holdfast_checks.settings.host import HostSettings
from holdfast_checks.settings.kernel import KernelSettings
from holdfast_checks.settings.network import NetworkSettings
from holdfast_checks.settings.option import option

__all__ = [
    "ActiveSettings",
    "CheckTables",
    "CloudSettings",
    "CustomSettings",
    "DcgmSettings",
    "GpuSettings",
    "HostSettings",
    "KernelSettings",
    "NetworkSettings",
]


@dataclass(frozen=True, slots=True)
class CheckTables:
    """The tables of the domains: the agent's configuration and the settings of checks both have them from here."""

    gpu: GpuSettings = option(GpuSettings(), "What is expected of the GPUs.")
    network: NetworkSettings = option(NetworkSettings(), "What is expected of EFA, InfiniBand and RoCE devices.")
    host: HostSettings = option(HostSettings(), "What is expected of the host.")
    kernel: KernelSettings = option(KernelSettings(), "Where kernels leave traces.")
    dcgm: DcgmSettings = option(DcgmSettings(), "How DCGM is asked.")
    active: ActiveSettings = option(ActiveSettings(), "Tests that need an idle node.")
    cloud: CloudSettings = option(CloudSettings(), "Where the cloud's metadata about this machine is found.")
    custom: dict[str, CustomSettings] = option({}, "Your own checks: one table [custom.NAME] each.")


@dataclass(frozen=True, slots=True)
class CheckSettings(CheckTables):
    """All settings of checks. ``gather`` reads them; ``judge`` gets what it needs of them with the facts."""

    expected_gpus: int | None = None
    """GPUs a node must have; None: as its instance type has, else those of the first good snapshot."""
    instance_type: str = ""
    """Such as ``p5.48xlarge``: decides how many GPUs and EFA devices there must be; empty: unknown."""
    disk_paths: tuple[str, ...] = ("/", "/tmp", "/var")  # noqa: S108 - watched, never written
    disk_degraded_percent: float = 90.0
    disk_failed_percent: float = 95.0
    nvml_hang_misses: int = 3
    slurmd_pid_file: Path | None = None
    """Where to look first for slurmd's process id; Slurm 23.11 and later write none under systemd."""
    slurm_conf: Path | None = None
    """The slurm.conf of this node's slurmd, where several clusters share a machine."""
    slurmd_node: str = ""
    """The node name that this slurmd serves (``slurmd -N``), where several run on one machine."""
    kmsg_path: Path = Path("/dev/kmsg")
    pstore_path: Path = Path("/sys/fs/pstore")
    proc: Path = Path("/proc")
    sysfs: Path = Path("/sys")
    state_dir: Path | None = None
    """Where learned manifests and baselines are kept; None: nothing was learned."""
