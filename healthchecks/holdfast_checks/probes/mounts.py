"""The mount table, and which file systems are on the network."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

NETWORK_TYPES = frozenset(
    {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "smb3", "ceph", "9p", "afs", "wekafs", "fuse.weka"}
)
"""A server that is away makes these hang."""
_USER = "user_id="
"""fusermount writes it for each FUSE file system, and takes no such option of a user's; the kernel shows it."""
_FIRST_USER = 1000
"""login.defs, UID_MIN: accounts below are the system's own."""
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the table."""

    source: str
    path: str
    kind: str
    read_only: bool
    by_user: bool = False
    """A user mounted it, and chose its source, its type and what it answers."""

    @property
    def remote(self) -> bool:
        return self.kind in NETWORK_TYPES


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """The lines of ``/proc/self/mounts``; ones that make no sense are left out.

    The kernel escapes spaces, tabs and newlines alone: whatever else Python takes for the end of a line or a word may be part of a name."""
    rows = (line.split(" ") for line in text.split("\n"))
    return tuple(_mount(*row[:4]) for row in rows if len(row) >= 4)


def _mount(source: str, path: str, kind: str, said: str) -> Mount:
    options = said.split(",")
    by_user = any(each.startswith(_USER) and not _is_of_the_system(each.removeprefix(_USER)) for each in options)
    return Mount(unescaped(source), unescaped(path), kind, "ro" in options, by_user)


def _is_of_the_system(uid: str) -> bool:
    """Root, or an account of a service (mount-s3, gcsfuse): who mounts a site's own file systems."""
    return (
        uid.isascii() and uid.isdigit() and not (len(uid) > 1 and uid.startswith("0")) and int(uid[:10]) < _FIRST_USER
    )


def read_mounts(proc: Path) -> tuple[Mount, ...]:
    """The mount table of this process; of a name that is not UTF-8 with surrogates, as ``os.fsdecode`` gives it. Raises OSError."""
    return parse_mounts((proc / "self/mounts").read_bytes().decode("utf-8", "surrogateescape"))


def covered(path: str, mounts: Iterable[Mount]) -> bool:
    """Whether a user has mounted something there, or over a folder above it: what root then sees at the path says nothing of the node."""
    return any(mount.by_user and within(path, mount.path) for mount in mounts)


def within(path: str, folder: str) -> bool:
    """Whether the path is this folder, or lies in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def unescaped(word: str) -> str:
    """A name of the mount table: the kernel writes blanks, tabs, line ends and backslashes as three octal digits."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), word)
