"""Read schedule for each job between its stop and its restart, separate from full readings. No I/O; times are monotonic seconds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

SHORTEST_S, LONGEST_S = 0.03, 10.0
"""Pause between two readings of a job. The longest equals that of full readings: a job that waits for a node then costs nothing extra."""
QUICK_S = 2.0
"""How long after a change (a step for the job, its stop) a job is read at the shortest pause."""
SLOWING = 0.1
"""After that the pause is this share of the time since then: each is a tenth longer than the one before."""
MOST_JOBS = 4
"""Jobs that are read at a time: those that changed last. The others wait for a full reading."""


def pause_s(since_move_s: float, took_s: float = 0.0) -> float:
    """Seconds between two readings of a job. ``took_s``: duration of the last one; a slow slurmctld is queried less often."""
    return max(SHORTEST_S, took_s, min(SLOWING * (since_move_s - QUICK_S), LONGEST_S))


@dataclass
class JobPace:
    """Jobs that are followed. A full reading of Slurm counts as a reading of each of them."""

    _records: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _moved_s: dict[int, float] = field(default_factory=dict)
    _read_s: dict[int, float] = field(default_factory=dict)
    _took_s: float = 0.0

    def follow(self, jobs: Mapping[int, tuple[int, ...]], now_s: float) -> None:
        """Follow exactly these jobs from now on, each with its records. A new one counts as just changed."""
        self._records = dict(jobs)
        self._moved_s = {n: self._moved_s.get(n, now_s) for n in jobs}
        self._read_s = {n: at_s for n, at_s in self._read_s.items() if n in jobs}

    def moved(self, job_id: int, now_s: float) -> None:
        """Record that a step was done for the job, or that it stopped or started."""
        self._moved_s[job_id] = now_s

    def read(self, jobs: Collection[int], now_s: float, took_s: float) -> None:
        self._took_s = took_s
        self._read_s |= dict.fromkeys(jobs, now_s)

    def all_read(self, now_s: float) -> None:
        """Record a full reading of Slurm."""
        self._read_s |= dict.fromkeys(self._records, now_s)

    def due(self, now_s: float) -> list[int]:
        """Jobs to be read now."""
        return [n for n in self._newest() if self._wait_s(n, now_s) <= 0]

    def next_s(self, now_s: float) -> float:
        """Seconds until the next one is due."""
        return min((max(self._wait_s(n, now_s), 0.0) for n in self._newest()), default=LONGEST_S)

    def records(self, jobs: Collection[int]) -> tuple[int, ...]:
        """The records of these jobs in Slurm."""
        return tuple(r for n in jobs for r in self._records[n])

    def _newest(self) -> list[int]:
        return sorted(self._records, key=lambda n: (-self._moved_s[n], n))[:MOST_JOBS]

    def _wait_s(self, job_id: int, now_s: float) -> float:
        read_s = self._read_s.get(job_id)
        return 0.0 if read_s is None else read_s + pause_s(now_s - self._moved_s[job_id], self._took_s) - now_s
