"""What is read of other users' processes in ``/proc/PID``: bounded, whatever their users make of it. Standard library only.

A user may make ``cmdline`` and ``environ`` of their process gigabytes long without using any memory (``PR_SET_MM_MAP``), give it any
name, and write any title. So code that judges a process asks first whose it is and what it executes, then reads; and no code reads these
files otherwise (psutil reads them whole, with the interpreter's lock held, and takes the name for a line of ``status``)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

CMDLINE_BYTES = 4 << 10
ENVIRON_BYTES = 256 << 10
SMALL_BYTES = 64 << 10
"""Of ``stat``, ``status`` and ``cgroup``, which the kernel itself keeps short."""
PROC = Path("/proc")


def read(path: str | Path, most_bytes: int) -> bytes:
    """The first bytes of a file of procfs; the kernel makes no more of it than that. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = bytearray()
        while len(found) < most_bytes and (data := os.read(fd, most_bytes - len(found))):
            found += data
        return bytes(found)
    finally:
        os.close(fd)


def text(pid: int | str, name: str, most_bytes: int = SMALL_BYTES) -> str:
    """A small file of a process, cut. Raises OSError."""
    return read(PROC / str(pid) / name, most_bytes).decode("utf-8", "replace")


class Stat(NamedTuple):
    """What ``stat`` shows of a process."""

    state: str
    """R, S, D, Z, T, I, …"""
    parent: int
    started_ticks: int
    """Since boot. With the pid it names this process and no later one."""
    cpu_ticks: tuple[int, int, int, int]
    """Its own user and system time, and of children that it has waited for."""

    @property
    def ended(self) -> bool:
        return self.state in "ZX"


def stat(pid: int | str, proc: Path = PROC) -> Stat | None:
    """None: the process is gone. The name, which its user chooses, ends at the last bracket."""
    try:
        fields = read(proc / str(pid) / "stat", SMALL_BYTES).rpartition(b")")[2].decode("ascii").split()
        user, system, ended_user, ended_system = map(int, fields[11:15])
        return Stat(fields[0], int(fields[1]), int(fields[19]), (user, system, ended_user, ended_system))
    except (OSError, ValueError, IndexError):
        return None


def words(process: Path) -> list[str]:
    """Its arguments, or the title that it has written over them; the first 4 KiB. Raises OSError."""
    return read(process / "cmdline", CMDLINE_BYTES).decode("utf-8", "replace").rstrip("\0").split("\0")


def environ(process: Path) -> Mapping[str, str]:
    """What it was started with; of more than 256 KiB the first whole ones. Raises OSError."""
    return pairs(read(process / "environ", ENVIRON_BYTES))


def pairs(data: bytes) -> Mapping[str, str]:
    """What an environment holds, as the kernel shows it. Pure."""
    whole = data if len(data) < ENVIRON_BYTES else data[: data.rfind(b"\0") + 1]
    found = (word.partition("=") for word in whole.decode("utf-8", "replace").split("\0"))
    return {name: value for name, equals, value in found if equals}


def uids(pid: int) -> frozenset[int]:
    """Its real, effective, saved and file system's user id. Raises OSError."""
    lines = text(pid, "status").split(
        "\n"
    )  # the name's line may hold anything but that, also what splitlines() takes for an end
    return frozenset(int(word) for line in lines if line.startswith("Uid:\t") for word in line.split()[1:])


def name(pid: int) -> str:
    """As the kernel has it: at most 15 letters, chosen by its user. Raises OSError."""
    return text(pid, "comm").removesuffix("\n")


def executable(pid: int) -> str:
    """Base name of what it executes, whatever it calls itself. Raises OSError."""
    return os.path.basename(os.readlink(PROC / str(pid) / "exe").removesuffix(" (deleted)"))
