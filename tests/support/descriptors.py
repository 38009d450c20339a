"""A process that has few file descriptors left, or none."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """This process can open this many more file descriptors and no others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    listed = set(map(int, os.listdir("/proc/self/fd")))
    taken = {number for number in listed if Path(f"/proc/self/fd/{number}").exists()}  # without the listing's own
    limit, free = 0, 0
    while free < count:
        free += limit not in taken
        limit += 1
    while limit in taken:
        limit += 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
