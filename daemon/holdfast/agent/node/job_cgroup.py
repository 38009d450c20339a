"""Job of a process, by its cgroup: a path of Slurm whose directories only root can have created."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from holdfast_checks.probes import process_files

_JOB_CGROUP = re.compile(
    r"(?:/[^/]+/uid_(?P<uid>\d+)|(?:/[^/]+\.slice)*/(?:[^/]+_)?slurmstepd\.scope)/job_(?P<job>\d+)(?=/|$)"
)
"""Slurm's paths, from the root of the tree: ``/slurm/uid_1000/job_7`` (v1), ``/system.slice/slurmstepd.scope/job_7`` (v2). A user may
own a cgroup (``user@1000.service``, a container's) and freely name what is below it, but it is never in one of these places."""
_TABLE = "/proc/self/mountinfo"


@dataclass(frozen=True, slots=True)
class CgroupJob:
    """A job with a cgroup that Slurm created."""

    job_id: int
    uid: int | None
    """The job's user, which v1 has in the path; None: v2 does not name one."""


@dataclass(frozen=True, slots=True)
class NamedCgroup:
    """The cgroup of a job in one hierarchy, as a line of ``/proc/PID/cgroup`` names it."""

    controllers: str
    """Empty: the hierarchy of v2."""
    path: str
    """Path of the job's cgroup, without the step's below it."""
    job: CgroupJob


def job_of_cgroup(pid: int) -> CgroupJob | None:
    """The job whose cgroup the process is in; None: no job's cgroup that only root can have created, or the process is gone."""
    try:
        text = process_files.text(pid, "cgroup")
        named = named_in(text)
        if not named:
            return None
        mounts = Path(_TABLE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return job_in(named, mounts)


def named_in(cgroups: str) -> list[NamedCgroup]:
    """Cgroups of jobs in a process's ``/proc/PID/cgroup``. Pure.

    Only a newline ends a line: other line separators of Python may be part of a name that a user chose."""
    found = []
    for line in cgroups.split("\n"):
        controllers, _, path = line.partition(":")[2].partition(":")
        match = _JOB_CGROUP.match(path)
        if match is not None:
            uid = None if match["uid"] is None else int(match["uid"])
            found.append(NamedCgroup(controllers, match[0], CgroupJob(int(match["job"]), uid)))
    return found


def job_in(named: Iterable[NamedCgroup], mounts: str) -> CgroupJob | None:
    """The job that all of these name; None: none, several, or directories that are not exclusively root's.

    ``mounts``: the mount table. A hierarchy that is not mounted proves nothing, so at least one must be."""
    found = list(named)
    jobs = {each.job for each in found}
    if len(jobs) != 1:
        return None
    places = [(root, each.path) for each in found if (root := hierarchy(each.controllers, mounts)) is not None]
    return jobs.pop() if places and all(_roots_alone(root, path) for root, path in places) else None


def hierarchy(controllers: str, mounts: str) -> Path | None:
    """Mount point of the complete hierarchy of these controllers; None: not mounted. Pure."""
    wanted = set(controllers.split(",")) if controllers else set()
    for line in mounts.split("\n"):  # as above
        where, _, what = line.partition(" - ")
        fields, kind = where.split(" "), what.split(" ")
        if len(fields) < 5 or len(kind) < 3 or fields[3] != "/" or "\\" in fields[4]:
            continue
        if kind[0] == ("cgroup" if wanted else "cgroup2") and wanted <= set(kind[2].split(",")):
            return Path(fields[4])
    return None


def _roots_alone(root: Path, path: str) -> bool:
    """Whether each directory from the hierarchy's root to this one belongs to root, and no other user can create one in it."""
    folder = root
    for name in ("", *path.strip("/").split("/")):
        folder = folder / name
        try:
            found = os.lstat(folder)
        except OSError:
            return False  # the job has just ended
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return False
    return True
