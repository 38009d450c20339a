"""The elastic jobs of a view: two arrays of one user as one job made of replica groups (``docs/elastic.md``). Pure.

Jobs that are not elastic by comment or owner are left out: an invalid declaration has no effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from holdfast.model.elastic_jobs.elastic import ElasticSpec, GroupRole, declares_elastic, parse_comment, start_name
from holdfast.model.elastic_jobs.room_names import job_label
from holdfast.model.elastic_jobs.sizes import BadSizes, Sizes
from holdfast.model.slurm.cluster import HOLDING_STATES, ClusterView, Job


@dataclass(frozen=True, slots=True)
class ReplicaGroup:
    """One element of one of the job's arrays."""

    index: int
    """SLURM_ARRAY_TASK_ID."""
    role: GroupRole
    job: Job
    """Its record; of an element that has not started yet the one that it shares with the array's other such elements."""

    @property
    def state(self) -> str:
        return self.job.state

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.job.nodes

    @property
    def start(self) -> str:
        """Name of this start of the group in its rendezvous; empty for an element that has not started."""
        return "" if self.waiting else start_name(self.job.key.job_id, self.job.restarts)

    @property
    def running(self) -> bool:
        return self.job.state in _RUNNING

    @property
    def waiting(self) -> bool:
        return self.job.state in _WAITING

    @property
    def over(self) -> bool:
        """It has ended for good (also while its last processes are cleared away)."""
        return self.job.state not in _WAITING and self.job.state not in HOLDING_STATES


@dataclass(frozen=True, slots=True)
class ElasticJob:
    """One elastic job as Slurm shows it now."""

    spec: ElasticSpec
    """Declaration of the base array."""
    user: str
    uid: int
    name: str
    base_array_id: int
    flexible_array_ids: tuple[int, ...]
    groups: tuple[ReplicaGroup, ...]
    """By index; an element that Slurm has forgotten is absent."""

    @property
    def label(self) -> str:
        """Name in texts and steps. Its rendezvous: ``elastic/naming.py``."""
        return job_label(self.base_array_id)

    @property
    def submitted_s(self) -> int | None:
        """Submit time of the base array as Unix time. None: each element that Slurm shows was requeued, which changes it there."""
        return min((g.job.key.submitted_s for g in self._base if not g.job.restarts), default=None)

    @property
    def shown_since_s(self) -> int:
        """Earliest submit time that Slurm shows of the base array, perhaps that of a requeue: it was submitted then or before."""
        return min(g.job.key.submitted_s for g in self._base or self.groups)

    @property
    def _base(self) -> tuple[ReplicaGroup, ...]:
        return tuple(g for g in self.groups if g.job.array_job_id == self.base_array_id)

    @property
    def sizes(self) -> Sizes:
        return self.spec.sizes

    @property
    def running(self) -> tuple[ReplicaGroup, ...]:
        return tuple(g for g in self.groups if g.running)

    @property
    def waiting(self) -> tuple[ReplicaGroup, ...]:
        return tuple(g for g in self.groups if g.waiting)

    @property
    def size(self) -> int:
        """The largest legal size that the running groups fill; 0 below the minimum."""
        return self.sizes.usable(len(self.running))

    @property
    def moves(self) -> bool:
        """A group runs, is being cleared away, or may start at any time."""
        return any(not g.over and (not g.waiting or g.job.may_start) for g in self.groups)

    @property
    def gapped(self) -> bool:
        """Whether some numbers of groups between minimum and maximum are no legal size."""
        return len(self.sizes.legal) <= self.sizes.most - self.sizes.least

    @property
    def changed_at(self) -> datetime | None:
        """Time when a group last started, was requeued or ended, as Slurm reports it."""
        times = [g.job.start_time for g in self.running]
        times += [g.job.key.submit_time for g in self.waiting if g.job.restarts]
        times += [g.job.end_time for g in self.groups if g.over]
        return max((at for at in times if at is not None), default=None)

    def group(self, index: int) -> ReplicaGroup | None:
        return next((g for g in self.groups if g.index == index), None)

    def holds(self, job_id: int) -> bool:
        """Whether this Slurm job id is an element (or the waiting elements' record) of it."""
        return any(g.job.key.job_id == job_id for g in self.groups)


@dataclass(frozen=True, slots=True)
class _Found:
    jobs: tuple[ElasticJob, ...]
    by_element: Mapping[int, ElasticJob]


class _Last:
    """Elastic jobs of the newest view, cached: a view never changes, and they are read many times."""

    def __init__(self) -> None:
        self._seen: tuple[ClusterView, _Found] | None = None

    def of(self, view: ClusterView) -> _Found:
        seen = self._seen  # a single read: other threads use it, too
        if seen is None or seen[0] is not view:
            jobs = _work_out(view)
            by_element = {g.job.key.job_id: each for each in jobs for g in each.groups}
            seen = self._seen = view, _Found(jobs, by_element)
        return seen[1]


_last = _Last()


def elastic_jobs(view: ClusterView) -> tuple[ElasticJob, ...]:
    """Elastic jobs by base array id, if an element is pending, running or completing; the others are over."""
    return _last.of(view).jobs


def elastic_of(view: ClusterView, job_id: int) -> ElasticJob | None:
    """The elastic job of which this Slurm job id is an element (or the waiting elements' record)."""
    return _last.of(view).by_element.get(job_id)


def _work_out(view: ClusterView) -> tuple[ElasticJob, ...]:
    declared = [(job, spec) for _, job in sorted(view.jobs.items()) if (spec := elastic_spec(job)) is not None]
    bases: dict[int, list[tuple[Job, ElasticSpec]]] = {}
    flexible: dict[int, list[Job]] = {}
    for job, spec in declared:
        if spec.of is None:
            bases.setdefault(job.array_job_id or 0, []).append((job, spec))
        else:
            flexible.setdefault(spec.of, []).append(job)
    found = (_together(array, records, flexible.get(array, [])) for array, records in sorted(bases.items()))
    return tuple(job for job in found if any(not g.over for g in job.groups))


def elastic_spec(job: Job) -> ElasticSpec | None:
    """Declaration in this array element's comment; None for any other job, and for an invalid declaration."""
    return _spec(job.comment) if job.array_job_id and declares_elastic(job.comment) else None


@lru_cache(maxsize=256)
def _spec(comment: str) -> ElasticSpec | None:
    try:
        return parse_comment(comment)
    except BadSizes:
        return None


def _together(array: int, base: list[tuple[Job, ElasticSpec]], flexible: list[Job]) -> ElasticJob:
    first, spec = min(base, key=lambda each: _by_number(array, each[0]))
    mine = [job for job in flexible if job.uid == first.uid]  # no user joins another user's job
    own = [job for job, _ in base if job.uid == first.uid]
    groups = _groups(own, spec, spec.base_indices) | _groups(mine, spec, spec.flexible_indices)
    arrays = tuple(sorted({job.array_job_id or 0 for job in mine}))
    return ElasticJob(
        spec, first.user, first.uid, first.name, array, arrays, tuple(g for _, g in sorted(groups.items()))
    )


def _by_number(array: int, job: Job) -> tuple[bool, int]:
    """Slurm numbers an array's elements from the array's id on: a lower number is another job's."""
    return job.key.job_id < array, job.key.job_id


def _groups(records: Iterable[Job], spec: ElasticSpec, indices: range) -> dict[int, ReplicaGroup]:
    """By index. Of two elements with one index (a second flexible array) the one that is not over, then the newer."""
    found: dict[int, ReplicaGroup] = {}
    for job in records:
        for index in job.tasks:
            group = ReplicaGroup(index, _role(spec, index), job)
            if index in indices and (index not in found or _weight(group) > _weight(found[index])):
                found[index] = group
    return found


def _weight(group: ReplicaGroup) -> tuple[bool, bool, int]:
    return not group.over, group.running, group.job.key.job_id


def _role(spec: ElasticSpec, index: int) -> GroupRole:
    if index < spec.sizes.least:
        return GroupRole.BASE
    return GroupRole.FLEXIBLE if index < spec.sizes.most else GroupRole.SPARE


_RUNNING = HOLDING_STATES - {"COMPLETING", "STAGE_OUT"}
_WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"})
