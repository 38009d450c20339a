"""Guard process: ends the processes that a launcher leaves behind when it is killed with SIGKILL.

The launcher's ranks die with it (PR_SET_PDEATHSIG). Processes that they have started do not: torchrun's workers, data loaders in separate
sessions. Slurm ends these with the step only where it tracks processes by cgroup. So a small process waits for the launcher's end and
kills every process that still carries its mark."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from holdfast.launcher import processes

_DONE = b"d"
_EVERY_S = 0.1
_GIVE_UP_S = 600.0
"""A process that SIGKILL does not end within this time hangs in the kernel; Slurm and the node have to deal with it."""


class GuardProcess:
    """A child of the launcher, forked before all others. It ends after the launcher, however that ends."""

    def __init__(self, mark: str, folder: str | None) -> None:
        """``mark``: NAME=value as in the environment of the launcher's processes. ``folder``: removed with them. Raises OSError."""
        read_fd, self._write_fd = os.pipe2(os.O_CLOEXEC)
        self.pid = os.fork()
        if self.pid == 0:
            _in_child(lambda: _watch(read_fd, mark.encode(), folder), keep_fd=read_fd)
        os.close(read_fd)

    def dismiss(self) -> None:
        """Stop the guard: all processes have ended."""
        with suppress(OSError):  # the guard was already killed
            os.write(self._write_fd, _DONE)
        os.close(self._write_fd)


def _in_child(work: Callable[[], None], keep_fd: int) -> None:
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        _close_all_but(keep_fd)
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # Slurm sends these signals to every process of a step
        work()
    finally:
        os._exit(0)


def _close_all_but(keep_fd: int) -> None:
    """Close all other descriptors, so that the launcher's connection to the agent ends with the launcher, and srun does not wait for the
    guard to close the job's output."""
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
        if fd > 2 and fd != keep_fd:
            with suppress(OSError):  # the descriptor of the listing itself
                os.close(fd)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(nowhere, fd)


def _watch(read_fd: int, mark: bytes, folder: str | None) -> None:
    told = os.read(read_fd, 1)  # empty when the launcher is gone
    if told == _DONE:
        return
    until_s, empty = time.monotonic() + _GIVE_UP_S, 0
    while empty < 2 and time.monotonic() < until_s:  # twice: a process just being forked appears in the second
        found = processes.marked(mark, processes.table())
        for process in found:
            processes.send(process, signal.SIGKILL)
        empty = 0 if found else empty + 1
        time.sleep(_EVERY_S)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
