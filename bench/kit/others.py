"""Other tools' checks, run once on this machine for their CPU time. Nothing of them is in this repository: the user names where they are.

NHC: a checkout of https://github.com/mej/nhc, with the configuration that its own nhc-genconf writes for this machine; all its checks
run, also after one that fails. GCM: a virtual environment with the package ``gpucm`` (https://github.com/facebookresearch/gcm), the
checks that need nothing of a site, at their defaults, on the same emulated NVML as our agent."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.model.errors import Unavailable

INTERVAL_S = 300.0
"""HealthCheckInterval in NHC's README; Meta runs GCM's full set every five minutes (arXiv 2410.21680)."""
_LONGEST_S = 120.0
_ENDED_WELL = (0, 1, 2, 3)
"""Nagios: the check ran to its end, whatever it found."""
_SMI = (
    "gpu_num",
    "clock_freq",
    "gpu_mem_usage",
    "ecc_uncorrected_volatile_total",
    "ecc_corrected_volatile_total",
    "row_remap",
)
GCM_CHECKS: tuple[tuple[str, ...], ...] = (
    ("check-nvidia-smi", *(word for check in _SMI for word in ("-c", check))),
    ("check-process", "check-dstate"),
    ("check-process", "check-zombie"),
    ("check-syslogs", "xid"),
    ("check-syslogs", "io-errors"),
    ("check-processor", "processor-freq"),
    ("check-processor", "cpufreq-governor"),
    ("check-processor", "check-clocksource"),
    ("check-processor", "check-buddyinfo"),
    ("check-storage", "disk-usage", "--volume", "/"),
    ("check-node", "uptime"),
)
"""Without those that want a manifest, a BMC, an InfiniBand link, Slurm's state or an idle GPU."""


@dataclass(frozen=True, slots=True)
class Spent:
    """One run of a whole set of checks."""

    name: str
    cpu_s: float
    """User and system time of everything that it started and waited for."""
    wall_s: float
    parts: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds of each check, where each is a separate command."""
    failed: Sequence[str] = ()
    """Checks that ended with no verdict."""

    @property
    def per_hour_s(self) -> float:
        return self.cpu_s * 3600 / INTERVAL_S


def nhc(checkout: Path) -> Spent:
    """One run. Raises Unavailable when it is not there or does not run."""
    if not (checkout / "nhc").exists():
        raise Unavailable(f"{checkout} is no checkout of mej/nhc")
    with tempfile.TemporaryDirectory(prefix="hfnhc-") as folder:
        where = [f"INCDIR={checkout}/scripts", f"HELPERDIR={checkout}/helpers", f"LOGFILE={folder}/log"]
        conf = Path(folder) / "nhc.conf"
        _call(["bash", str(checkout / "nhc-genconf"), "-H", "*", "-c", str(conf), *where])
        argv = [
            "bash",
            str(checkout / "nhc"),
            "-c",
            str(conf),
            *where,
            "MARK_OFFLINE=0",
            "NHC_RM=slurm",
            "DETACHED_MODE=0",
            "NHC_CHECK_ALL=1",
        ]
        status, cpu_s, wall_s = _call(argv)
        lines = sum(1 for line in conf.read_text().splitlines() if line.strip() and not line.startswith("#"))
        return Spent(f"NHC, {lines} checks, exit status {status}", cpu_s, wall_s)


def gcm(environment: Path, env: Mapping[str, str]) -> Spent:
    """One run of each check of :data:`GCM_CHECKS`. ``env``: leads it to the emulated NVML. Raises Unavailable."""
    command = environment / "bin" / "health_checks"
    if not command.exists():
        raise Unavailable(f"{command} is not there: python3 -m venv {environment}; {environment}/bin/pip install gpucm")
    parts: dict[str, float] = {}
    failed: list[str] = []
    wall_s = 0.0
    with tempfile.TemporaryDirectory(prefix="hfgcm-") as folder:
        for words in GCM_CHECKS:
            verb = words[:1] if words[0] == "check-nvidia-smi" else words[:2]
            argv = [
                str(command),
                *verb,
                "bench",
                "nagios",
                "--sink",
                "do_nothing",
                "--log-folder",
                folder,
                *words[len(verb) :],
            ]
            status, cpu_s, seconds = _call(argv, env)
            name = " ".join(verb)
            parts[name] = cpu_s
            wall_s += seconds
            if status not in _ENDED_WELL:
                failed.append(f"{name} ({status})")
    return Spent(f"GCM, {len(parts)} commands", sum(parts.values()), wall_s, parts, failed)


def _call(argv: Sequence[str], env: Mapping[str, str] | None = None) -> tuple[int, float, float]:
    """(exit status, CPU seconds, wall seconds). Raises Unavailable."""
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    try:
        done = subprocess.run(
            argv, env={**os.environ, **(env or {})}, capture_output=True, timeout=_LONGEST_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{argv[0]}: {error}") from error
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.returncode, cpu_s, time.monotonic() - began_s
