"""What a site says about the host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast_checks.settings.option import option


@dataclass(frozen=True, slots=True)
class HostSettings:
    """Table ``[host]`` of ``agent.toml``."""

    services: tuple[str, ...] = option((), "Further systemd units that must be active.")
    mounts: dict[str, str] = option(
        {}, 'Mount points that must be there, with their type ("" for any), such as "/fsx" = "lustre".'
    )
    writable_mounts: tuple[str, ...] = option(
        (),
        "Mount points into which the agent writes, and removes, a small file (.holdfast-probe-…) to see whether it can.",
    )
    mount_deadline_s: float = option(5.0, "A mount that takes longer to answer hangs.", low=0.1, high=60)
    modules: tuple[str, ...] = option((), 'Kernel modules that must be loaded, such as "nvidia_peermem".')
    manifest: Path | None = option(
        None, "Manifest of a good node, the same file for all; unset: the one that this node learned, in state_dir."
    )
    memory_available_mib: float = option(256.0, "Less available memory than this is a warning.", low=0)
    time_offset_s: float = option(0.1, "A clock that is further off than this is a warning.", low=0.0001, high=60)
    time_error_s: float = option(
        5.0, "A clock whose possible error, by the kernel, is larger than this is a warning.", low=0.001, high=60
    )
    load_per_cpu: float = option(4.0, "A load average (5 minutes) per CPU above this is a warning.", low=0.1)
    munge_socket: str = option("/run/munge/munge.socket.2", "Where munged listens.")
    munge_key: Path = option(Path("/etc/munge/munge.key"), "munge is expected to run where this file exists.")
    slurm_confs: tuple[Path, ...] = option(
        (Path("/etc/slurm/slurm.conf"), Path("/run/slurm/conf/slurm.conf"), Path("/opt/slurm/etc/slurm.conf")),
        "Where slurm.conf may be; its AuthType says whether munge is used.",
    )
    proc: Path = option(Path("/proc"), "procfs, for everything but the processes of Slurm.")
    clock_file: Path | None = option(
        None, "File that says what the kernel's clock state is, in JSON; for rehearsals. Unset: the kernel is asked."
    )
    volumes_file: Path | None = option(
        None, "File that says how full file systems are, in JSON; for rehearsals. Unset: they are asked."
    )
    systemctl: str = option("systemctl", "The command systemctl.")
    stat: str = option("stat", "The command stat of GNU coreutils; it asks mounts whether they answer.")
    munge: str = option("munge", "The command munge.")
    unmunge: str = option("unmunge", "The command unmunge.")
