"""File descriptors of a process: errors when none are left, and the limit of open files."""

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
"""Errors caused by missing resources of this process or machine: they say nothing about the remote side, and a retry may succeed."""
LOG_EVERY_S = 60.0


RESERVED_SHARE = 0.25
"""Share of the open files that incoming connections may not use: reserved for Slurm's commands, the store, connects to nodes that
do not answer, and notifications."""
RESERVED_LEAST = 1024
MOST_OPEN_FILES = 65_536
"""The same value as LimitNOFILE of the systemd units."""


def open_files() -> int:
    """How many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_OPEN_FILES if soft == resource.RLIM_INFINITY else soft


def for_connections(limit: int) -> int:
    """Number of incoming connections that a process with this limit of open files may have."""
    reserved = max(int(limit * RESERVED_SHARE), min(RESERVED_LEAST, limit // 2))
    return max(limit - reserved, 1)


def raise_limit() -> None:
    """Raise the limit of open files as far as permitted, at most to ``MOST_OPEN_FILES``: a login shell's default is 1,024."""
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
    """Exception handler of an event loop that logs failed accepts once a minute: asyncio reports each one with a traceback,
    thousands at a time."""

    clock_s: Callable[[], float] = time.monotonic
    count: int = 0
    """Failed accepts since the process started."""
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
