"""File system of a path: SQLite's locks and shared memory do not work over a network. Pure."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

NETWORK_TYPES = frozenset(
    {
        *("nfs", "nfs4", "lustre", "cifs", "smb3", "smbfs", "9p", "beegfs", "gpfs", "ceph", "glusterfs", "afs"),
        *("ocfs2", "gfs2", "pvfs2", "orangefs", "panfs", "wekafs", "daos", "virtiofs", "fsx", "efs", "coda", "ncpfs"),
    }
)
"""Names as the kernel prints them. Amazon FSx is mounted as lustre, nfs or cifs and EFS as nfs4; theirs are here for helpers."""


def network_type(path: PurePosixPath, mounts: str) -> str | None:
    """Type of the network file system that holds the absolute, resolved path; None: a local one, or not known.

    ``mounts`` is the text of ``/proc/mounts``. Every FUSE file system counts as one: what is behind it cannot be known."""
    found = mount_type(path, mounts)
    if found is None:
        return None
    return found if found in NETWORK_TYPES or found == "fuse" or found.startswith("fuse.") else None


def mount_type(path: PurePosixPath, mounts: str) -> str | None:
    """Type of the innermost mount that holds the path; of two at one point the later one counts, as in the kernel."""
    best: tuple[int, str] | None = None
    for line in mounts.splitlines():
        words = line.split()
        if len(words) < 3:
            continue
        point = PurePosixPath(_unescape(words[1]))
        if path.is_relative_to(point) and (best is None or len(point.parts) >= best[0]):
            best = (len(point.parts), words[2])
    return best[1] if best else None


def _unescape(word: str) -> str:
    """Decode a mount point: the kernel writes spaces, tabs and backslashes as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m.group(1), 8)), word)
