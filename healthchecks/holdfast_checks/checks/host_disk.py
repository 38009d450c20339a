"""``host.disk``: local file systems that are full or read-only."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast_checks.probes.mounts import NETWORK_TYPES, read_mounts, within
from holdfast_checks.probes.procfs import text
from holdfast_checks.registry import Check, Context, Cost, Need, NotGathered, Threshold
from holdfast_checks.result import Remedy, Result, Severity
from holdfast_checks.settings import CheckSettings

CHECK_ID = "host.disk"

DEGRADED_PERCENT = 90.0
FAILED_PERCENT = 95.0
_FUSE = "fuse"


@dataclass(frozen=True, slots=True)
class Volume:
    """One watched path."""

    path: str
    used_percent: float
    inodes_used_percent: float
    """0 where the file system does not count inodes."""
    read_only: bool
    skipped: str = ""
    """Why it was not asked."""


@dataclass(frozen=True, slots=True)
class HostDiskFacts:
    """The volumes, each file system once, and the limits."""

    volumes: tuple[Volume, ...]
    degraded_percent: float = DEGRADED_PERCENT
    failed_percent: float = FAILED_PERCENT


def gather(context: Context) -> HostDiskFacts:
    """Never asks a network file system: that may hang for ever. A path that is not there is left out."""
    settings = context.settings
    volumes: dict[int | str, Volume] = {}
    for path in settings.disk_paths:
        kind = _filesystem(path, settings)
        if kind in NETWORK_TYPES or kind.startswith(_FUSE):
            volumes[path] = Volume(path, 0, 0, read_only=False, skipped=f"{kind} may hang the agent")
        elif Path(path).exists():
            volumes.setdefault(Path(path).stat().st_dev, _told(_volume(path), settings.host.volumes_file))
    return HostDiskFacts(tuple(volumes.values()), settings.disk_degraded_percent, settings.disk_failed_percent)


def _volume(path: str) -> Volume:
    seen = os.statvfs(path)
    usable = seen.f_blocks - seen.f_bfree + seen.f_bavail
    return Volume(
        path,
        used_percent=100 * (1 - seen.f_bavail / usable) if usable else 0.0,
        inodes_used_percent=100 * (1 - seen.f_favail / seen.f_files) if seen.f_files else 0.0,
        read_only=bool(seen.f_flag & os.ST_RDONLY),
    )


def _told(volume: Volume, file: Path | None) -> Volume:
    """What a rehearsal says of it instead: ``{"used_percent": 97.0}``. Raises NotGathered for anything else."""
    if file is None or (found := text(file)) is None:
        return volume
    try:
        raw = json.loads(found)
        return replace(
            volume,
            used_percent=float(raw.get("used_percent", volume.used_percent)),
            inodes_used_percent=float(raw.get("inodes_used_percent", volume.inodes_used_percent)),
            read_only=bool(raw.get("read_only", volume.read_only)),
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise NotGathered(f"{file}: {error}") from error


def _filesystem(path: str, settings: CheckSettings) -> str:
    """The kind of file system that a path is on, from the mount table; a path is not touched for it."""
    best, kind = "", ""
    for mount in read_mounts(settings.proc):
        if within(path, mount.path) and len(mount.path) >= len(best):
            best, kind = mount.path, mount.kind
    return kind


def judge(facts: HostDiskFacts) -> tuple[Result, ...]:
    """One result a file system."""
    return tuple(_judge_one(volume, facts) for volume in facts.volumes)


def _judge_one(volume: Volume, facts: HostDiskFacts) -> Result:
    if volume.skipped:
        return Result.skipped(CHECK_ID, volume.path, summary=volume.skipped)
    worst = max(volume.used_percent, volume.inodes_used_percent)
    what = "space" if worst == volume.used_percent else "inodes"
    if volume.read_only:
        return _finding(volume, "read_only", Severity.DEGRADED, "mounted read-only")
    if worst >= facts.failed_percent:
        return _finding(volume, "full", Severity.DEGRADED, f"{worst:.0f} % of {what} used")
    if worst >= facts.degraded_percent:
        return _finding(volume, "filling", Severity.WARNING, f"{worst:.0f} % of {what} used")
    return Result.ok(CHECK_ID, volume.path, summary=f"{worst:.0f} % used", sticky=True)


def _finding(volume: Volume, code: str, severity: Severity, what: str) -> Result:
    return Result.finding(
        CHECK_ID,
        severity,
        Remedy.HUMAN if severity is Severity.DEGRADED else Remedy.NONE,
        volume.path,
        failed=severity is Severity.DEGRADED,  # what is full or read-only has failed; running jobs may end first
        code=code,
        summary=f"{volume.path}: {what}",
        evidence={"used_percent": round(volume.used_percent, 1), "inodes": round(volume.inodes_used_percent, 1)},
        sticky=True,
    )


CHECK = Check(
    id=CHECK_ID,
    title="Local file systems have room and can be written",
    needs=frozenset({Need.HOST}),
    interval_s=60,
    cost=Cost.PASSIVE,
    severity=Severity.DEGRADED,
    remedy=Remedy.HUMAN,
    gather=gather,
    judge=judge,
    observe=False,
    thresholds=(
        Threshold("used, warning", DEGRADED_PERCENT, "percent", "OCI: 90 %; GCM: 80 and 85 %"),
        Threshold("used, failed", FAILED_PERCENT, "percent", "OCI: inodes 95 %; gpud: limits at 95 %"),
    ),
)
