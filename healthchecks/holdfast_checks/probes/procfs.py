"""Pieces of procfs and sysfs, read with few system calls. Standard library only."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast_checks.registry import NotGathered

_STAT_BYTES = 512
"""Of ``/proc/PID/stat``: the name (at most 64 bytes for a kernel worker) and the state are at its start."""
_FEW = 8
_DIGITS = 19
_MODULE_WORDS = 6
"""Of a line of ``/proc/modules``: name, size, users, by whom, state, address."""
_MOST_CPUS = 65_536


@dataclass(frozen=True, slots=True)
class Process:
    """One process as ``stat`` shows it."""

    pid: int
    name: str
    """At most 15 letters (more for a kernel worker), chosen by its user."""
    state: str
    """R, S, D, Z, T, I, …"""


@dataclass(frozen=True, slots=True)
class Scan:
    """All processes at one moment, counted."""

    total: int
    zombies: int
    zombie_names: tuple[str, ...]
    """Of a few of them."""
    blocked: tuple[Process, ...]
    """Those in state D."""


def scan(proc: Path) -> Scan:
    """Read every process once. Raises NotGathered where none can be seen."""
    total = zombies = 0
    names: dict[str, None] = {}
    blocked: list[Process] = []
    for process in processes(proc, states=None):
        total += 1
        if process.state == "Z":
            zombies += 1
            if len(names) < _FEW:
                names[process.name] = None
        elif process.state == "D":
            blocked.append(process)
    if not total:
        raise NotGathered(f"no process can be seen in {proc}")
    return Scan(total, zombies, tuple(names), tuple(blocked))


def processes(proc: Path, states: str | None = None) -> Iterator[Process]:
    """Every process, or those in one of ``states``. One that ends meanwhile is left out. Raises OSError without procfs."""
    pids = (entry for entry in os.listdir(proc) if entry.isdigit())
    yield from named(proc, pids, states)


def named(proc: Path, pids: Iterable[int | str], states: str | None = None) -> Iterator[Process]:
    """The same of these alone."""
    root = str(proc)
    for pid in pids:
        if data := _read_bytes(f"{root}/{pid}/stat"):
            end = data.rfind(b")")
            state = chr(data[end + 2]) if 0 < end < len(data) - 2 else "?"
            if states is None or state in states:
                yield Process(int(pid), data[data.find(b"(") + 1 : end].decode("utf-8", "replace"), state)


def _read_bytes(path: str) -> bytes:
    """The start of a small file; empty where there is none (any more). Bare calls: this runs once for each process."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, _STAT_BYTES)
    except OSError:
        return b""
    finally:
        os.close(fd)


def owner(proc: Path, pid: int) -> int | None:
    """User id that a process runs as; None: it has ended."""
    with contextlib.suppress(OSError):
        return os.stat(proc / str(pid)).st_uid
    return None


def text(path: Path) -> str | None:
    """A small file's text without the white space around it; None: there is none, or it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def whole(word: str) -> int | None:
    """A whole number as the kernel writes it, 64 bits at most; None: the word is none."""
    return int(word) if word.isascii() and word.isdigit() and len(word) <= _DIGITS else None


def number(path: Path) -> int | None:
    """The first number in a small file; None: there is none."""
    words = (text(path) or "").split()
    return whole(words[0]) if words else None


def meminfo(proc: Path) -> Mapping[str, int]:
    """``/proc/meminfo``: name → KiB. Raises NotGathered without it."""
    found = text(proc / "meminfo")
    if found is None:
        raise NotGathered(f"{proc}/meminfo cannot be read")
    lines = (line.split() for line in found.splitlines())
    pairs = ((words[0].rstrip(":"), whole(words[1])) for words in lines if len(words) > 1)
    return {name: value for name, value in pairs if value is not None}


def modules(proc: Path) -> frozenset[str]:
    """Names of the loaded kernel modules. Raises NotGathered where ``/proc/modules`` names none (a kernel without modules)."""
    lines = (line.split() for line in (text(proc / "modules") or "").splitlines())
    found = frozenset(words[0] for words in lines if len(words) >= _MODULE_WORDS and whole(words[1]) is not None)
    if not found:
        raise NotGathered(f"{proc}/modules names no module")
    return found


def cpu_list(words: str | None) -> frozenset[int]:
    """The kernel's list format, ``0-3,8``. Raises NotGathered for anything else."""
    cpus: set[int] = set()
    for part in (words or "").split(","):
        first, dash, last = part.strip().partition("-")
        low, high = whole(first), whole(last if dash else first)
        if low is None or high is None or high >= _MOST_CPUS:
            raise NotGathered(f"{(words or '')[:80]!r} is no list of CPUs")
        cpus.update(range(low, high + 1))
    return frozenset(cpus)


def short_list(items: Iterable[str | int], most: int = _FEW) -> str:
    """The first few of them, for a line of text."""
    words = [str(item) for item in items]
    return ", ".join(words[:most]) + (", …" if len(words) > most else "")
