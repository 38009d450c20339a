"""The agent is a guest on the node: it steps back for the job, and looks less often while the node is short of CPU."""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Sequence
from pathlib import Path

import psutil

log = logging.getLogger(__name__)

PRESSED_PERCENT = 40.0
"""Share of the last ten seconds in which some task waited for a CPU (``/proc/pressure/cpu``, some avg10): a job that keeps one task
a core busy stays far below, so that this says that somebody needs what the agent would take."""
STRETCH = 2.0
"""Host checks run so much more rarely then. Kernel log, NVML and heartbeat never do: they are what finds a fault."""
_FRESH_S = 1.0
"""The kernel works the share out every two seconds."""
_OPEN_FILES = 16384
"""systemd gives 1,024 unless asked: too few for a node with 32 EFA devices beside 1,024 connections of jobs."""
_KEPT_SHARE = 16
"""So small a part of the files that may be open is kept open: 1,024 of 16,384."""


def room_for_files() -> int:
    """Raise the limit of open files as far as it may be; how many counters may be kept open under it."""
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
    """Lower priority for CPU and disk; with ``cpus``, run on these only. What the kernel refuses is logged and left."""
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
    """By how much the intervals of host checks are to be stretched now; 1 where the kernel does not say."""
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
