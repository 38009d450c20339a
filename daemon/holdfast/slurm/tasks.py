"""Task ids of an array, as Slurm writes them. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import chain

_TASKS = re.compile(r"(\d+)(?:-(\d+)(?::([1-9]\d*))?)?")
_MOST_TASKS = 4_000_001
"""slurm.conf(5): the maximum of MaxArraySize."""


@lru_cache(maxsize=64)
def waiting_tasks(text: str) -> tuple[int, ...]:
    """Task ids of ``2-5,9%1`` or ``0-8:2``; empty for what cannot be read, and for more than an array may have."""
    found = [_TASKS.fullmatch(part) for part in text.partition("%")[0].split(",")]
    ranges = [range(int(m[1]), int(m[2] or m[1]) + 1, int(m[3] or 1)) for m in found if m is not None]
    if len(ranges) != len(found) or sum(map(len, ranges)) > _MOST_TASKS:
        return ()
    return tuple(chain.from_iterable(ranges))
