"""Fast exit of a process that has left: the teardown of torch's modules takes seconds, in which the node is not free yet."""

from __future__ import annotations

import atexit
import logging
import os
import sys

_wanted: list[int] = []


def end_quickly(status: int) -> None:
    """Make the interpreter exit with this status without tearing modules down: after all ``finally`` blocks, and after the exit
    handlers registered since this library was imported."""
    _wanted.append(status)


def _end() -> None:
    if _wanted:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_wanted[-1])


atexit.register(_end)
