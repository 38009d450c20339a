"""Ends a process that has left at once. torch's modules take seconds to be torn down, in which the node is not free yet."""

from __future__ import annotations

import atexit
import logging
import os
import sys

_wanted: list[int] = []


def end_quickly(status: int) -> None:
    """The interpreter will end with this status without tearing modules down: after everybody's ``finally``, and after the exit
    handlers that were registered since this library was imported."""
    _wanted.append(status)


def _end() -> None:
    if _wanted:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_wanted[-1])


atexit.register(_end)
