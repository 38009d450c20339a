"""Rate limit for full readings of Slurm caused by agents' requests about a job that the newest view does not show correctly. Pure.

Any user may ask, and any number of times. The first request for a job triggers a reading; if nothing changes, further ones wait for the
scheduled readings (every 10 s at the latest). All requests together trigger few readings."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from holdfast.bucket import Bucket

LOOKS_BURST, LOOKS_PER_S = 5, 0.1
"""Readings caused by requests, for all jobs together: burst, and sustained rate. With the scheduled readings at most 0.2 a second."""
SPACING_S = 1.0
"""Minimum time between two of them; one reading answers all earlier requests."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Pause between two readings for one job, first and longest: each is twice as long as the one before."""
FORGOTTEN_S = 600.0
"""A job for which Slurm was not read for this long starts again with the first pause."""
LOOKED_FOR_MAX = 1000


@dataclass(slots=True)
class _Asked:
    looked_s: float
    pause_s: float


@dataclass(slots=True)
class Looks:
    """Rate limiter. For one event loop."""

    _all: Bucket = field(default_factory=lambda: Bucket(LOOKS_BURST, LOOKS_PER_S))
    _last_s: float = float("-inf")
    _jobs: OrderedDict[int, _Asked] = field(default_factory=OrderedDict)

    def allow(self, job_id: int, now_s: float) -> bool:
        """Whether Slurm is to be read for this request."""
        before = self._jobs.get(job_id)
        if before is not None and now_s - before.looked_s >= FORGOTTEN_S:
            before = None
        too_soon = before is not None and now_s < before.looked_s + before.pause_s
        if too_soon or now_s < self._last_s + SPACING_S or self._all.left(now_s) < 1:
            return False
        self._all.take(now_s)
        self._last_s = now_s
        self._jobs[job_id] = _Asked(
            now_s, FIRST_PAUSE_S if before is None else min(2 * before.pause_s, LONGEST_PAUSE_S)
        )
        self._jobs.move_to_end(job_id)
        while len(self._jobs) > LOOKED_FOR_MAX:
            self._jobs.popitem(last=False)
        return True
