"""File descriptors of a process: what it means to have none left, and how many it may open."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)

OWN_LACK = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors by which this process or its machine lacks what a call needs: they say nothing about the other side, and a later try may not meet
them."""
LOG_EVERY_S = 60.0


RESERVED_SHARE = 0.25
"""Of the files that a process may have open, what connections of others to it may not use: for Slurm's commands, the store, connects to
silent nodes, messages to people."""
RESERVED_LEAST = 1024
MOST_OPEN_FILES = 65_536
"""As the units' LimitNOFILE."""


def open_files() -> int:
    """How many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_OPEN_FILES if soft == resource.RLIM_INFINITY else soft


def for_connections(limit: int) -> int:
    """How many connections of others a process may have that may have so many files open."""
    reserved = max(int(limit * RESERVED_SHARE), min(RESERVED_LEAST, limit // 2))
    return max(limit - reserved, 1)


def raise_limit() -> None:
    """Raise the limit of open files as far as it may be, to ``MOST_OPEN_FILES``: a login shell gives 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(MOST_OPEN_FILES, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        log.warning("event=open_files_limited soft=%d hard=%d error=%r", soft, hard, str(error))


@dataclass
class NotAccepted:
    """Exception handler of an event loop: asyncio reports every connection that it cannot accept, with a trace each, thousands at a time.
    One line a minute says it."""

    clock_s: Callable[[], float] = time.monotonic
    count: int = 0
    """Since the process started."""
    _logged_s: float | None = None

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in OWN_LACK and "socket" in context):
            loop.default_exception_handler(context)
            return
        self.count += 1
        now_s = self.clock_s()
        if self._logged_s is None or now_s - self._logged_s >= LOG_EVERY_S:
            self._logged_s = now_s
            log.error("event=connections_not_accepted times=%d error=%r", self.count, str(error))
