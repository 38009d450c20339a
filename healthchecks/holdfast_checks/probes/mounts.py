"""The mount table, and which file systems are on the network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

NETWORK_TYPES = frozenset(
    {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "smb3", "ceph", "9p", "afs", "wekafs", "fuse.weka"}
)
"""A server that is away makes these hang."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the table."""

    source: str
    path: str
    kind: str
    read_only: bool

    @property
    def remote(self) -> bool:
        return self.kind in NETWORK_TYPES


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """The lines of ``/proc/self/mounts``; ones that make no sense are left out."""
    lines = (line.split() for line in text.splitlines())
    return tuple(
        Mount(_plain(words[0]), _plain(words[1]), words[2], "ro" in words[3].split(","))
        for words in lines
        if len(words) >= 4
    )


def read_mounts(proc: Path) -> tuple[Mount, ...]:
    """The mount table of this process. Raises OSError."""
    return parse_mounts((proc / "self/mounts").read_text(encoding="utf-8", errors="replace"))


def _plain(word: str) -> str:
    for escaped, plain in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        word = word.replace(escaped, plain)
    return word
