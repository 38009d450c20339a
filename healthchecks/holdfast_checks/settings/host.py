# ruff: noqa: RUF009 - setting() is dataclasses.field() with a sentence
"""What a site says about the host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast_checks.settings.setting import setting


@dataclass(frozen=True, slots=True)
class HostSettings:
    """Table ``[host]`` of ``agent.toml``."""

    services: tuple[str, ...] = setting((), "Further systemd units that must be active.")
    mounts: dict[str, str] = setting(
        {}, 'Mount points that must be there, with their type ("" for any), such as "/fsx" = "lustre".'
    )
    writable_mounts: tuple[str, ...] = setting(
        (),
        "Mount points into which the agent writes, and removes, a small file (.holdfast-probe-…) to see whether it can.",
    )
    mount_deadline_s: float = setting(5.0, "A mount that takes longer to answer hangs.", low=0.1, high=60)
    modules: tuple[str, ...] = setting((), 'Kernel modules that must be loaded, such as "nvidia_peermem".')
    manifest: Path | None = setting(
        None, "Manifest of a good node, the same file for all; unset: the one that this node learned, in state_dir."
    )
    memory_available_mib: float = setting(256.0, "Less available memory than this is a warning.", low=0)
    time_offset_s: float = setting(0.1, "A clock that is further off than this is a warning.", low=0.0001, high=60)
    time_error_s: float = setting(
        5.0, "A clock whose possible error, by the kernel, is larger than this is a warning.", low=0.001, high=60
    )
    load_per_cpu: float = setting(4.0, "A load average (5 minutes) per CPU above this is a warning.", low=0.1)
    munge_socket: str = setting("/run/munge/munge.socket.2", "Where munged listens.")
    munge_key: Path = setting(Path("/etc/munge/munge.key"), "munge is expected to run where this file exists.")
    slurm_confs: tuple[Path, ...] = setting(
        (Path("/etc/slurm/slurm.conf"), Path("/run/slurm/conf/slurm.conf"), Path("/opt/slurm/etc/slurm.conf")),
        "Where slurm.conf may be; its AuthType says whether munge is used.",
    )
    proc: Path = setting(Path("/proc"), "procfs, for everything but the processes of Slurm.")
    clock_file: Path | None = setting(
        None, "File that says what the kernel's clock state is, in JSON; for rehearsals. Unset: the kernel is asked."
    )
    volumes_file: Path | None = setting(
        None, "File that says how full file systems are, in JSON; for rehearsals. Unset: they are asked."
    )
    systemctl: str = setting("systemctl", "The command systemctl.")
    stat: str = setting("stat", "The command stat of GNU coreutils; it asks mounts whether they answer.")
    munge: str = setting("munge", "The command munge.")
    unmunge: str = setting("unmunge", "The command unmunge.")
