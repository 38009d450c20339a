"""Processes stuck in state D: followed from one sample to the next."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from holdfast_checks.probes import process_files
from holdfast_checks.probes.procfs import Process, named, owner, scan, text

_MODULE = re.compile(r"\[(\w+)\]\s*$", re.MULTILINE)
"""The module of a frame of ``/proc/PID/stack``: ``[<0>] nvidia_unlocked_ioctl+0x1/0x2 [nvidia]``."""
_MOST_FOLLOWED = 200
"""A file server that is away blocks every process that touches it; a few of them say as much."""

_ALL_EVERY = 3
"""Every third sample reads all processes, the others those that were found blocked: a full scan is expensive (8 ms for 1,000 processes)."""
_ONE_BLOCKED = 0.5
"""The kernel counts each process in state D as one of the load, averaged over a minute: one that is blocked has added this much after 42 s.
Below it there is none to be found that was there a sample ago, and the scan is left to the next sample."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """One process that was in state D at this and the previous samples, and has not run in between."""

    pid: int
    name: str
    looks: int
    uid: int | None
    modules: tuple[str, ...] = ()
    """Kernel modules on its stack, innermost first; empty: none, or the stack cannot be read."""
    stack_known: bool = False


@dataclass(frozen=True, slots=True)
class _Seen:
    ran: str
    looks: int


class DstateWatch:
    """History of previous samples. One for each procfs; a restart begins an empty one."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}
        self._wait = 0
        """Samples until the next full scan."""

    def look(self, proc: Path, report_from: int) -> tuple[Stuck, ...]:
        """Take one more sample; those that have been stuck for ``report_from`` samples or more. Raises NotGathered, OSError."""
        if self._wait == 0 and _may_be_blocked(proc):
            found: Iterable[Process] = scan(proc).blocked
            self._wait = _ALL_EVERY - 1
        else:
            found = named(proc, self._seen, "D")
            self._wait = max(0, self._wait - 1)
        blocked = {process.pid: process for process in islice(found, _MOST_FOLLOWED)}
        self._seen = {pid: self._followed(proc, pid) for pid in blocked}
        return tuple(
            _described(proc, blocked[pid], seen.looks) for pid, seen in self._seen.items() if seen.looks >= report_from
        )

    def _followed(self, proc: Path, pid: int) -> _Seen:
        ran = _times_it_ran(proc / str(pid))
        before = self._seen.get(pid)
        return _Seen(ran, before.looks + 1 if before is not None and before.ran == ran else 1)


def _may_be_blocked(proc: Path) -> bool:
    """Whether the load leaves room for a process in state D; True where it cannot be read."""
    try:
        return float((text(proc / "loadavg") or "").partition(" ")[0]) >= _ONE_BLOCKED
    except ValueError:
        return True


def _times_it_ran(process: Path) -> str:
    """Its start and its context switches: the same at two samples means the same process, asleep all the while."""
    stat = process_files.stat(process.name, process.parent)
    status = text(process / "status") or ""
    switches = [line.split()[-1] for line in status.splitlines() if "ctxt_switches" in line]
    return " ".join([str(stat.started_ticks) if stat else "", *switches])


def _described(proc: Path, process: Process, looks: int) -> Stuck:
    stack = text(proc / str(process.pid) / "stack")
    modules = tuple(dict.fromkeys(_MODULE.findall(stack or "")))
    return Stuck(process.pid, process.name, looks, owner(proc, process.pid), modules, stack_known=bool(stack))
