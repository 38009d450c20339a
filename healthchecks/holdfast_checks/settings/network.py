"""What a site says about its network devices."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_checks.settings.option import option


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Table ``[network]`` of ``agent.toml``."""

    expected_efa: int = option(0, "EFA devices that this node must have; 0: those that it had before.", low=0, high=64)
    expected_ib_ports: int = option(
        0, "InfiniBand and RoCE ports that must be up; 0: those that were up before.", low=0, high=64
    )
    expected_rate_gbps: float = option(
        0.0, "Rate that each of those ports must have; 0: the best that it had before.", low=0, high=10_000
    )
    ignore_devices: tuple[str, ...] = option(
        (), 'RDMA devices that are not checked, by name or pattern: "mlx5_4", "mlx5_bond_*".'
    )
    default_route_device: str = option("", "Network device of the default route; empty: as in /proc/net/route.")
    flap_quiet_min: float = option(
        60.0, "A port that flapped is healthy again after this many minutes without a flap.", low=1, high=1440
    )
    memlock_gib: float = option(16.0, "Memory that slurmd must be able to lock, for EFA; 0: not checked.", low=0)
    fi_info: str = option("", "libfabric's command fi_info; empty: /opt/amazon/efa/bin/fi_info, else as on PATH.")
    slurmd_spool: str = option("/var/spool/slurmd", "Slurm's SlurmdSpoolDir: shows which jobs are here.")
    busy_after_min: float = option(
        5.0, "A job counts as busy on the network after this many minutes of heavy traffic.", low=0.01, high=1440
    )
    silent_after_min: float = option(
        10.0,
        "A job that was busy on the network counts as silent after this many minutes without traffic.",
        low=0.01,
        high=1440,
    )
