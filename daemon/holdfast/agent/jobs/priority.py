"""The agent's own priority: it yields to the job, and runs checks less often while the node is short of CPU."""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Sequence
from pathlib import Path

import psutil

log = logging.getLogger(__name__)

PRESSED_PERCENT = 40.0
"""Share of the last ten seconds in which some task waited for a CPU (``/proc/pressure/cpu``, some avg10). A job with one busy task per
core stays far below; above this value, another process needs the CPU time that the agent would take."""
STRETCH = 2.0
"""Factor by which the intervals of host checks grow then. Kernel log, NVML and heartbeat keep theirs: they detect faults."""
_FRESH_S = 1.0
"""How long a read value is reused; the kernel updates it every two seconds."""
_OPEN_FILES = 16384
"""systemd's default of 1,024 is too low for a node with 32 EFA devices and 1,024 connections of jobs."""
_KEPT_SHARE = 16
"""One in this many of the permitted open files is kept open for counters: 1,024 of 16,384."""


def room_for_files() -> int:
    """Raise the limit of open files as far as allowed; the number of counters that may be kept open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _OPEN_FILES // _KEPT_SHARE
    wanted = max(soft, _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        log.warning("event=open_files_limited soft=%d hard=%d error=%s", soft, hard, error)
        wanted = soft
    return min(wanted, _OPEN_FILES) // _KEPT_SHARE


def step_back(nice: int, cpus: Sequence[int]) -> None:
    """Lower the priority for CPU and disk; with ``cpus``, run only on these. A refusal by the kernel is logged and ignored."""
    me = psutil.Process()
    try:
        if nice > me.nice():
            me.nice(nice)
        me.ionice(psutil.IOPRIO_CLASS_IDLE)
        if cpus:
            me.cpu_affinity(list(cpus))
    except (psutil.Error, OSError, ValueError) as error:
        log.warning("event=courtesy_refused nice=%d cpus=%s error=%s", nice, ",".join(map(str, cpus)) or "-", error)


def stretch(pressure: Path = Path("/proc/pressure/cpu")) -> float:
    """Factor for the intervals of host checks now; 1 where the kernel reports no pressure."""
    try:
        with open(pressure, "rb", buffering=0) as file:
            first = os.read(file.fileno(), 256).split(b"\n", 1)[0]
    except OSError:
        return 1.0
    return STRETCH if waiting_percent(first.decode("ascii", "replace")) >= PRESSED_PERCENT else 1.0


class Stretch:
    """:func:`stretch`, read once for all checks of a turn."""

    def __init__(self) -> None:
        self._factor = 1.0
        self._read_s = float("-inf")

    def now(self, now_s: float) -> float:
        """``now_s``: CLOCK_MONOTONIC."""
        if now_s - self._read_s > _FRESH_S:
            self._factor, self._read_s = stretch(), now_s
        return self._factor


def waiting_percent(line: str) -> float:
    """``avg10`` of one line of a pressure file; 0 when there is none."""
    for word in line.split():
        key, _, value = word.partition("=")
        if key == "avg10":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 0.0
