"""Which jobs are on this node, without asking Slurm: by the sockets of slurmstepd and by its cgroups."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast_checks.probes import sysfs as files

_SOCKET = re.compile(r".*_(\d+)\.\d+")
"""``NODE_JOB.STEP`` in SlurmdSpoolDir, as slurmd itself looks for its steps."""
_CGROUP = re.compile(r"job_(\d+)")


def jobs_here(spool: Path, sysfs: Path) -> frozenset[int] | None:
    """Job ids; None: this machine shows neither the folder nor the cgroups."""
    scopes = [name for name in files.names(sysfs / "fs/cgroup/system.slice") if name.endswith("slurmstepd.scope")]
    if not spool.is_dir() and not scopes:
        return None
    sockets = (_SOCKET.fullmatch(name) for name in files.names(spool))
    cgroups = (
        _CGROUP.fullmatch(job) for name in scopes for job in files.names(sysfs / "fs/cgroup/system.slice" / name)
    )
    return frozenset(int(match[1]) for match in (*sockets, *cgroups) if match)
