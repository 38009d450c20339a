"""Process that simulates a node whose packets are dropped. Run by path, standard library only: ``cut_off.py READY_FILE PORT PID…``

It duplicates the processes' TCP sockets (pidfd_getfd(2), Linux 5.6), so that nothing is closed when they are killed: peers
see neither FIN nor RST and get no answer. The backlog of each listening socket is shrunk and filled, after which Linux
drops every further SYN. No privilege is needed except the right to trace the processes (same user). Without that right, or
if no listener was found, it binds the port itself once it is free. When it exits, everything is closed and the listener of
a living process gets its backlog back.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import time
from pathlib import Path

_SYS_PIDFD_GETFD = 438
_BACKLOG = 4096
_FILL_TRIES = 64
_TAKE_PORT_S = 5.0


def main(ready: str, port: int, pids: list[int]) -> None:
    sockets = [found for pid in pids for found in tcp_sockets(pid)]
    listeners = [found for found in sockets if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)]
    if not listeners:
        listeners = [_take(port)]
    fillers = [filler for listener in listeners for filler in _fill(listener)]
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    Path(ready).touch()
    try:
        signal.pause()
    finally:
        for held in fillers:
            held.close()
        for listener in listeners:
            listener.listen(_BACKLOG)


def tcp_sockets(pid: int) -> list[socket.socket]:
    """Duplicates of all TCP sockets of a process; empty when it is gone or may not be traced."""
    found: list[socket.socket] = []
    try:
        pidfd = os.pidfd_open(pid)
        numbers = [int(name) for name in os.listdir(f"/proc/{pid}/fd")]
    except (ProcessLookupError, FileNotFoundError, PermissionError):
        return found
    for number in numbers:
        duplicate = ctypes.CDLL(None, use_errno=True).syscall(_SYS_PIDFD_GETFD, pidfd, number, 0)
        if duplicate >= 0:
            _keep_if_tcp(duplicate, found)
    os.close(pidfd)
    return found


def _keep_if_tcp(duplicate: int, found: list[socket.socket]) -> None:
    try:
        candidate = socket.socket(fileno=duplicate)
    except OSError:  # a file or a pipe
        os.close(duplicate)
        return
    if candidate.family in {socket.AF_INET, socket.AF_INET6} and candidate.type == socket.SOCK_STREAM:
        found.append(candidate)
    else:
        candidate.close()


def _take(port: int) -> socket.socket:
    deadline = time.monotonic() + _TAKE_PORT_S
    while True:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
        except OSError:
            listener.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            listener.listen(0)
            return listener


def _fill(listener: socket.socket) -> list[socket.socket]:
    """Connect until the accept queue is full: the next SYNs are dropped."""
    listener.listen(0)
    port = listener.getsockname()[1]
    fillers = []
    for _ in range(_FILL_TRIES):
        filler = socket.socket()
        filler.settimeout(0.1)
        fillers.append(filler)
        try:
            filler.connect(("127.0.0.1", port))
        except TimeoutError:
            break
        except OSError:
            break
    return fillers


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), [int(word) for word in sys.argv[3:]])
