"""The node's network path as seen by its active tests: healthy, dead or corrupting, without any sign on the node.

``active.python`` of the practice's agents is a script in the node's folder. It starts the real Python; while the path is broken, with
sockets that lose or change what they receive."""

from __future__ import annotations

import sys
from pathlib import Path

PYTHON = "python"
_BROKEN = "path_broken"
DEAD, CORRUPT = "dead", "corrupt"

_SCRIPT = """\
#!/bin/sh
# Python of the node's active tests. While {broken} is there, its network is broken under load.
here=$(dirname "$0")
[ -s "$here/{broken}/mode" ] && export PYTHONPATH="$here/{broken}${{PYTHONPATH:+:$PYTHONPATH}}"
exec {python} "$@"
"""
_SHIM = '''\
"""Sockets of a node whose network is broken under load."""
import pathlib
import socket
import time

_MODE = (pathlib.Path(__file__).parent / "mode").read_text().strip()
_WHOLE = 64 * 1024
_seen = 0
_recv_into = socket.socket.recv_into


def recv_into(self, buffer, *args):
    global _seen
    if _MODE == "dead" and _seen > _WHOLE:
        time.sleep(self.gettimeout() or 60.0)
        raise TimeoutError("timed out")
    count = _recv_into(self, buffer, *args)
    if _MODE == "corrupt" and _seen <= _WHOLE < _seen + count:
        memoryview(buffer).cast("B")[count - 1] ^= 4
    _seen += count
    return count


socket.socket.recv_into = recv_into
'''


def install(folder: Path) -> None:
    """Set a healthy path, and install the script that ``active.python`` names."""
    script = folder / PYTHON
    script.write_text(_SCRIPT.format(broken=_BROKEN, python=sys.executable))
    script.chmod(0o755)
    restore(folder)


def break_path(folder: Path, mode: str) -> None:
    """``DEAD``: data after the first 64 KiB is lost. ``CORRUPT``: a bit in it is flipped."""
    broken = folder / _BROKEN
    broken.mkdir(exist_ok=True)
    (broken / "sitecustomize.py").write_text(_SHIM)
    (broken / "mode").write_text(f"{mode}\n")


def restore(folder: Path) -> None:
    (folder / _BROKEN / "mode").unlink(missing_ok=True)
