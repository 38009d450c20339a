"""The nursery: ``python -m holdfast.practice.cluster.nursery_main SOCKET MODULE …`` imports the modules, then forks a daemon for each
request on the socket (``nursery.py``). It has one thread, and no child for longer than a moment: the daemons outlive it.

In each daemon ``_serve`` returns, so that it runs and ends like the main program that it is.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import runpy
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.practice.cluster import launch, nursery
from holdfast.unix_socket import bound

_ARG_START, _ARG_END = 45, 46
"""Where /proc/PID/stat has the place of the command line in memory, counted from the field behind the name."""


def main(socket_file: Path, modules: Sequence[str]) -> None:
    for module in modules:
        importlib.import_module(module)
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        sys.exit(f"an import of {', '.join(modules)} has started {threads - 1} threads: nothing can be forked safely")
    gc.collect()
    gc.freeze()  # what is imported stays; collecting it would copy its memory in each daemon
    _become(_serve(bound(socket_file, 0o600, socket.SOCK_STREAM)))


def _serve(listener: socket.socket) -> nursery.Birth:
    """Fork a daemon for each request; returns in each of them."""
    listener.setblocking(True)
    mine = nursery.at_start(os.environ)
    while True:
        connection, _ = listener.accept()
        wanted = _read(connection)
        if wanted is not None and nursery.at_start(wanted.env) == mine and _in_a_daemon():
            listener.close()
            launch.detach(wanted.log, wanted.cwd, connection.detach(), reaper=wanted.reaper)
            os.close(launch.REPORT_FD)
            return wanted
        connection.close()  # without an answer if it is refused


def _read(connection: socket.socket) -> nursery.Birth | None:
    """The request; None where the caller died meanwhile."""
    try:
        with connection.makefile("rb") as file:
            return nursery.Birth(**json.loads(file.read()))
    except (OSError, ValueError):
        return None


def _in_a_daemon() -> bool:
    """Fork twice, so that the nursery is not the daemon's parent; True in the daemon."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return False
    if os.fork():
        os._exit(0)
    return True


def _become(wanted: nursery.Birth) -> None:
    """Run the module as ``python -m`` does."""
    os.environ.clear()
    os.environ.update(wanted.env)
    sys.argv = [wanted.module, *wanted.arguments]
    _show([sys.executable, "-m", *sys.argv])
    runpy.run_module(wanted.module, run_name="__main__", alter_sys=True)


def _show(words: Sequence[str]) -> None:
    """Put the words in the place of the nursery's own in /proc/PID/cmdline, where ``ps`` reads them; what is too long is cut off."""
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
    text = b"\0".join(os.fsencode(word) for word in words)[: end - start - 1]
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
