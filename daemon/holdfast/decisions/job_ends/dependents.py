"""Dependent jobs that have started, or are free to start, because another one ended. Pure.

Slurm forgets a dependency once it is met, so that what a job waited for is known only from when it was seen waiting
(:attr:`Job.dependency`). One that was never seen waiting counts as dependent if its times allow it: two concurrent runs may write into one
place, while a job that is not requeued only loses time.

Of an array Slurm keeps the worst exit of any run of any element (tried on 22.05): once one element has failed, ``afterok:8_*`` is never met
and ``afternotok:8_*`` is met at the array's end, however well that element ends when it is started again. A dependency on the element alone
(``8_3``) uses its newest end."""

from __future__ import annotations

import re
from datetime import timedelta

from holdfast.model.slurm.cluster import HOLDING_STATES, ClusterView, Job

_ON = re.compile(r"(?P<kind>[a-z]+):(?P<id>\d+)(?:_(?P<task>\d+|\*))?(?P<delay>\+\d+)?(?:\((?P<state>[^)]*)\))?")
_AT_START = "after"
"""Met when the other job starts or is cancelled: its end changes nothing."""
_ALIVE = HOLDING_STATES | {"PENDING"}
_SINGLETON = "singleton"
_BY_EXIT = frozenset({"afterok", "afternotok"})
"""Decided by how the other one ends; ``afterany`` only by that it ends."""
_TASK_BY_TASK = "aftercorr"
"""Each element waits for the other array's element with the same number; a job that is no element waits as by ``afterok``."""
_LINK = timedelta(seconds=60)
"""A job of the same name that its owner submitted so shortly before a job's end was submitted by its script, as a chain does."""
_GIVEN_UP = "failed"
"""Slurm's mark of a dependency that is never met."""


def waits_for(dependency: str, job: Job) -> bool:
    """Whether a job with this dependency, as Slurm shows it, waits for the end of ``job``."""
    for on in _ON.finditer(dependency):
        number = int(on["id"])
        whole = number in (job.key.job_id, job.array_job_id) and on["task"] in (None, "*")
        element = number == job.array_job_id and on["task"] is not None and on["task"] == str(job.array_task_id)
        if on["kind"] != _AT_START and (whole or element):
            return True
    return False


def latched_for(dependency: str, other: Job, job: Job) -> bool:
    """Whether ``other``, which still waits by this dependency, is decided for good by the failure of ``job``, an element of an array: what
    happens to it no longer follows how the array ends when the element is started again."""
    if job.array_job_id is None or job.array_task_id is None:
        return False
    on = [m for m in _ON.finditer(dependency) if int(m["id"]) == job.array_job_id and m["task"] in (None, "*")]
    by_exit = any(m["kind"] in _BY_EXIT for m in on)
    pairs = [m for m in on if m["kind"] == _TASK_BY_TASK]
    mine = not other.tasks or job.array_task_id in other.tasks or any(m["state"] == _GIVEN_UP for m in pairs)
    return by_exit or (bool(pairs) and mine)


def gone_on(view: ClusterView, job: Job) -> Job | None:
    """A job of the same user that has started, is free to start or was cancelled because this one, which is over, has ended; None: there is
    none. One that waits for an array in which this one has failed counts too (:func:`latched_for`). Any user may make a job depend on
    another one's, so only jobs of the same owner count."""
    return next((other for _, other in sorted(view.jobs.items()) if _went_on(other, job)), None)


def _next_link(other: Job, job: Job) -> bool:
    """Whether a script submitted its own next job as it failed, without a dependency: the two would train at the same time."""
    if job.end_time is None or other.name != job.name or other.restarts > 0 or other.state not in _ALIVE:
        return False
    if other.array_job_id is not None and other.array_job_id == job.array_job_id:
        return False
    ran = (
        job.start_time is not None and job.start_time + _LINK <= other.key.submit_time
    )  # not one of a batch submitted together
    return ran and job.end_time - _LINK <= other.key.submit_time <= job.end_time


def _went_on(other: Job, job: Job) -> bool:
    if job.end_time is None or other.key.job_id == job.key.job_id or other.uid != job.uid:
        return False
    if _next_link(other, job):
        return True
    if other.dependency is None:
        began = other.start_time is not None and other.start_time >= job.end_time and bool(other.nodes)
        return began and other.key.submit_time <= job.end_time and other.restarts == 0
    named = waits_for(other.dependency, job)
    same_name = _SINGLETON in other.dependency and other.name == job.name
    if not (named or same_name):
        return False
    if other.state == "PENDING":
        return latched_for(other.dependency, other, job) or not (other.depends or other.held or other.fits_nowhere)
    when = other.start_time if other.nodes else other.end_time
    return when is None or when >= job.end_time
