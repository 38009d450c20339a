"""The processes of a launcher, from /proc: found by descent, and those of a dead launcher by a mark in their environment.

A launcher is the subreaper of everything that it starts: a process in a separate session, or one whose parent has died, is still its
descendant. So descent is complete as long as the launcher lives; the mark is for processes that outlive it."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from holdfast_checks.probes import process_files

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class LaunchedProcess:
    """One process, as /proc/PID/stat showed it."""

    pid: int
    parent: int
    started_ticks: int
    """Together with the pid it identifies this process and no later one."""
    zombie: bool


def become_subreaper() -> None:
    """Orphans below this process become its children. Raises OSError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """SIGKILL for this process when the thread that started it ends; kept over exec. Raises OSError."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def table() -> dict[int, LaunchedProcess]:
    """Every process of this machine that can be seen."""
    found = (_read(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def below(root: int, processes: Mapping[int, LaunchedProcess]) -> list[LaunchedProcess]:
    """Descendants of a process, parents before their children, zombies included."""
    children: dict[int, list[LaunchedProcess]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process)
    found: list[LaunchedProcess] = []
    todo = [root]
    while todo:
        born = children.get(todo.pop(), [])
        found += born
        todo += [process.pid for process in born]
    return found


def marked(mark: bytes, processes: Mapping[int, LaunchedProcess]) -> list[LaunchedProcess]:
    """Living processes whose environment holds ``NAME=value`` exactly. Those of other users cannot be read, and are not ours."""
    return [process for process in processes.values() if not process.zombie and mark in _environment(process.pid)]


def catching(pid: int, number: signal.Signals) -> bool:
    """Whether the process has its own handler for the signal."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            masks = [int(line.split()[1], 16) for line in file if line.startswith("SigCgt:")]
    except OSError:
        return False
    return bool(masks and masks[0] >> (number - 1) & 1)


def nearest_catching(
    roots: list[int], number: signal.Signals, processes: Mapping[int, LaunchedProcess]
) -> list[LaunchedProcess]:
    """The topmost processes at or below the roots that handle the signal: the training, not a shell around it nor its workers.

    The table is no snapshot of one moment: descendants of a process that has just died are checked, too."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: list[LaunchedProcess] = []
    todo = [pid for pid in roots if pid in processes]
    while todo:
        pid = todo.pop()
        if not processes[pid].zombie and catching(pid, number):
            found.append(processes[pid])
        else:
            todo += children.get(pid, [])
    return found


def send(process: LaunchedProcess, number: signal.Signals) -> None:
    """Signal exactly this process; one that is gone or no longer ours is left alone."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        now = _read(process.pid)
        if now is not None and now.started_ticks == process.started_ticks:
            signal.pidfd_send_signal(descriptor, number)
    except (ProcessLookupError, PermissionError):
        return
    finally:
        os.close(descriptor)


def _read(pid: int) -> LaunchedProcess | None:
    stat = process_files.stat(pid)
    return LaunchedProcess(pid, stat.parent, stat.started_ticks, stat.ended) if stat is not None else None


def _environment(pid: int) -> Iterator[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            yield from file.read().split(b"\0")
    except OSError:
        return


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
