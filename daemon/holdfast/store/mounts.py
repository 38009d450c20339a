"""File system of a path: SQLite's locks and shared memory do not work over a network. Pure."""

from __future__ import annotations

from pathlib import PurePosixPath

from holdfast_checks.probes import mounts as table
from holdfast_checks.probes.mounts import parse_mounts

NETWORK_TYPES = table.NETWORK_TYPES | {
    *("smbfs", "glusterfs", "ocfs2", "gfs2", "pvfs2", "orangefs", "panfs", "daos", "virtiofs", "fsx", "efs", "coda"),
    "ncpfs",
}
"""Names as the kernel prints them: those whose server may go away, and those that several hosts share. Amazon FSx is mounted as lustre, nfs
or cifs and EFS as nfs4; theirs are here for helpers."""


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
    for mount in parse_mounts(mounts):
        point = PurePosixPath(mount.path)
        if path.is_relative_to(point) and (best is None or len(point.parts) >= best[0]):
            best = (len(point.parts), mount.kind)
    return best[1] if best else None
