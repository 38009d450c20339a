"""Read interval of Slurm for elastic jobs: short while their groups come and go, as long as usual while nothing changes. Pure.

A job grows and shrinks by what Slurm shows. But any user may submit a job that waits for days, or one whose groups end as fast as they
start. So groups that do not change do not count, and changes of one user's jobs count only as often as that user's token bucket allows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.bucket import Bucket
from holdfast.decisions.common.elastic_jobs import ElasticJob

ELASTIC_S = 1.0
"""The longest pause right after a group of an elastic job started, ended or came to other nodes."""
SLOWING = 0.1
"""After that, the longest pause as a share of the time since the last change."""
MOVES_BURST, MOVES_PER_S = 10, 1 / 300
"""Changes of one user's jobs that count: burst, and sustained rate. Each causes about thirty additional reads of Slurm."""
_Shown = tuple[tuple[int, str, int, tuple[str, ...]], ...]


@dataclass(slots=True)
class ElasticPace:
    """Read intervals for elastic jobs. For one event loop; times are monotonic seconds."""

    _shown: dict[str, tuple[_Shown, float]] = field(default_factory=dict)
    """Elastic job → its groups as last seen, and when the last change that counted took place."""
    _users: dict[int, Bucket] = field(default_factory=dict)

    def longest_s(self, jobs: Iterable[ElasticJob], now_s: float) -> float:
        """The longest pause for these jobs; infinite where none of them changes."""
        before, self._shown = self._shown, {}
        for job in jobs:
            if job.moves:
                self._shown[job.label] = self._seen(job, before.get(job.label), now_s)
        self._users = {u: b for u, b in self._users.items() if b.left(now_s) < MOVES_BURST}
        newest_s = max((at_s for _, at_s in self._shown.values()), default=float("-inf"))
        return max(ELASTIC_S, SLOWING * (now_s - newest_s))

    def _seen(self, job: ElasticJob, before: tuple[_Shown, float] | None, now_s: float) -> tuple[_Shown, float]:
        shown = tuple((g.job.key.job_id, g.job.state, g.job.restarts, g.job.nodes) for g in job.groups)
        if before is not None and before[0] == shown:
            return before
        user = self._users.setdefault(job.groups[0].job.uid, Bucket(MOVES_BURST, MOVES_PER_S))
        if user.left(now_s) >= 1:
            user.take(now_s)
            return shown, now_s
        return shown, float("-inf") if before is None else before[1]
