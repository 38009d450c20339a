"""CPU time and memory of process trees, from /proc; and an end that leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from holdfast.practice.cluster.processes import descendants
from holdfast_checks.probes import process_files

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Cpu:
    """Seconds of CPU used so far."""

    own_s: float
    """User and system time of the process, or of the live processes of a tree."""
    ended_s: float
    """Of children that have ended and were waited for."""

    @property
    def total_s(self) -> float:
        return self.own_s + self.ended_s

    def __sub__(self, before: Cpu) -> Cpu:
        return Cpu(self.own_s - before.own_s, self.ended_s - before.ended_s)


def end_cleanly() -> None:
    """SIGTERM unwinds the stack as Ctrl-C does, so that what was started is ended too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def cpu(pid: int) -> Cpu:
    """Of one process with all its threads; zero when it is gone."""
    stat = process_files.stat(pid)
    if stat is None:
        return Cpu(0.0, 0.0)
    user, system, ended_user, ended_system = (ticks * _TICK_S for ticks in stat.cpu_ticks)
    return Cpu(user + system, ended_user + ended_system)


def waited_s(pid: int) -> float:
    """How long the live threads of a process were ready to run and got no core: other processes had it."""
    waited_ns = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            waited_ns += int(path.read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return waited_ns / 1e9


def tree(pid: int) -> list[int]:
    """The process and everything below it."""
    return [pid, *(child.pid for child in descendants(pid))]


def tree_cpu(pid: int) -> Cpu:
    """Of the whole tree; what ended below it counts where it was waited for."""
    each = [cpu(one) for one in tree(pid)]
    return Cpu(sum(c.own_s for c in each), sum(c.ended_s for c in each))


def wakeups(pid: int) -> int:
    """Voluntary context switches of the live threads of the tree so far: each is a wake-up."""
    found = 0
    for one in tree(pid):
        for path in Path(f"/proc/{one}/task").glob("*/status"):
            try:
                lines = path.read_text().splitlines()
            except (FileNotFoundError, ProcessLookupError):
                continue
            found += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches:"))
    return found


def system_calls(pid: int, seconds: float) -> dict[str, float]:
    """System calls a second of the tree, by name, most first; what starts meanwhile counts too. Empty where strace is missing or not
    permitted. It slows the tree down: CPU is to be measured without."""
    attach = [word for one in tree(pid) for word in ("-p", str(one))]
    try:
        done = subprocess.run(
            ["timeout", "-s", "INT", f"{seconds:g}", "strace", "-f", "-c", "-U", "calls,name", *attach],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return {}
    rows = re.findall(r"^ *(\d+) (\w+)$", done.stderr, re.MULTILINE)
    found = {name: int(calls) / seconds for calls, name in rows if name != "total"}
    return dict(sorted(found.items(), key=lambda row: -row[1]))


def pss_bytes(pid: int) -> int:
    """Proportional set size: shared pages count by their share. Zero when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def command(pid: int) -> str:
    """Its command line, shortened."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return "(gone)"
    return " ".join(Path(word).name if word.startswith("/") else word for word in words if word)[:60]
