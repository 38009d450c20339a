"""Start one process of a practice cluster, detached from the caller. Run by path, standard library only.

``launch.py [--reaper] LOG CWD -- ARGV…`` prints ``PID MAIN_PID`` and exits once the process runs. With ``--reaper`` PID is a
small parent that adopts every orphan below it (PR_SET_CHILD_SUBREAPER), as a machine's init process does: slurmstepd and
processes that a job's task detaches stay below it, so that a whole node can be killed at once. It lives as long as any
process below it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import NoReturn

_PR_SET_CHILD_SUBREAPER = 36
REPORT_FD = 3
"""Where a detached process has the caller's end of the report: not inherited by a program that it becomes."""


def main(args: list[str]) -> int:
    reaper = args[0] == "--reaper"
    log, cwd, _separator, *argv = args[1:] if reaper else args
    read_fd, write_fd = os.pipe()
    if os.fork():
        os.close(write_fd)
        with open(read_fd, encoding="ascii") as report:
            answer = report.read()  # EOF comes when the program runs: execve closes the descriptor
        sys.stdout.write(answer + "\n")
        return 0 if answer else 1
    detach(log, cwd, write_fd, reaper=reaper)
    return _become(argv)


def _become(argv: list[str]) -> NoReturn:
    os.execvp(argv[0], argv)  # noqa: S606 - the process that was asked for, without a shell


def detach(log: str, cwd: str, report_fd: int, *, reaper: bool) -> None:
    """Give this forked process its own session, a log and no descriptor of the caller but ``REPORT_FD``, to which it writes
    ``PID MAIN_PID``. Returns in the main process alone; the reaper ends here."""
    os.setsid()
    os.chdir(cwd)
    _open_standard_files(log, report_fd)
    if not reaper:
        os.write(REPORT_FD, f"{os.getpid()} {os.getpid()}".encode())
        return
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    if main_pid := os.fork():
        _reap(main_pid)
    os.setsid()


def _open_standard_files(log: str, report_fd: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    kept = os.dup2(report_fd, 100)
    for source, target in ((null, 0), (out, 1), (out, 2), (kept, REPORT_FD)):
        os.dup2(source, target)
    os.closerange(REPORT_FD + 1, 256)
    os.set_inheritable(REPORT_FD, False)


def _reap(main_pid: int) -> NoReturn:
    os.write(REPORT_FD, f"{os.getpid()} {main_pid}".encode())
    os.close(REPORT_FD)
    signal.signal(signal.SIGTERM, lambda _number, _frame: os.kill(main_pid, signal.SIGTERM))
    while True:
        try:
            os.wait()
        except ChildProcessError:
            os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
