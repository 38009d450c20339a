"""Listing of all jobs: ``squeue``'s values of each, with the details of its record of ``scontrol show job -d -o``.

Few of ten thousand jobs change between two readings: an unchanged record is not parsed again. A record that a user's text imitates is read
on its own, some at a time. Until then the job is listed with what is certain, and its details are those of its run's last reading, or
unknown."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from holdfast.model.slurm.cluster import Job
from holdfast.slurm import parse, records
from holdfast.slurm.details import Details, details, unknown
from holdfast.slurm.squeue import SqueueRow

_LOG = logging.getLogger(__name__)
MOST_ALONE = 8
"""Maximum number of records that are read on their own within one reading."""
_FEW = 8
"""Maximum number of ids in a log line."""
_ALONE_S = 1.0
"""No further record is read on its own after this long."""


@dataclass(frozen=True, slots=True)
class _Read:
    row: SqueueRow
    printed: str
    """The records with its id at that time, without values that change all the time; empty: it has to be read again."""
    details: Details
    job: Job

    def same_run(self, row: SqueueRow) -> bool:
        now = (row.submitted, row.restarts, row.nodes)
        return (self.row.submitted, self.row.restarts, self.row.nodes) == now


class JobListing:
    """Listing that remembers the last reading. Safe to call from several threads."""

    def __init__(
        self,
        cluster: str,
        now: Callable[[], float],
        alone: Callable[[int], str | None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``alone``: what ``scontrol`` prints of one job; None: nothing."""
        self._monotonic = monotonic
        self._cluster = cluster
        self._now = now
        self._alone = alone
        self._known: dict[int, _Read] = {}
        self._asked: dict[int, int] = {}
        """How often each job with a record in doubt was read on its own, so that none waits forever behind others."""

    def read(self, text: str, rows: Mapping[int, SqueueRow]) -> dict[int, Job]:
        """``text``: all records. Raises Rejected as :func:`parse.job`."""
        known, texts = self._known, records.jobs(text)
        printed: dict[int, str] = {}
        found: dict[int, _Read] = {}
        doubtful: list[int] = []
        for job_id, row in sorted(rows.items()):
            theirs, before = texts.get(row.job_id, []), known.get(job_id)
            printed[job_id] = records.still("\n".join(theirs))
            if before is not None and before.row == row and before.printed == printed[job_id]:
                found[job_id] = before
            elif len(theirs) == 1 and (details_now := details(theirs[0], row)) is not None:
                found[job_id] = self._read(row, printed[job_id], details_now)
            else:
                doubtful.append(job_id)
        self._doubtful(doubtful, rows, printed, found)
        self._known = found
        unreadable = [str(job_id) for job_id in sorted(found) if found[job_id].job.unreadable]
        if unreadable:
            few = ",".join(unreadable[:_FEW])
            _LOG.info(
                "event=node_lists_unreadable jobs=%d first=%s effect=they_are_not_restarted", len(unreadable), few
            )
        return {job_id: found[job_id].job for job_id in sorted(found)}

    def _doubtful(
        self,
        job_ids: list[int],
        rows: Mapping[int, SqueueRow],
        printed: Mapping[int, str],
        found: dict[int, _Read],
    ) -> None:
        """Add the jobs whose records cannot be distinguished from a user's text, or are from another moment than the rows."""
        known, until = self._known, self._monotonic() + _ALONE_S
        asked_before, self._asked = self._asked, {}
        before = {
            job_id: read
            for job_id in job_ids
            if (read := known.get(job_id)) and read.same_run(rows[job_id]) and read.details.gpus_known
        }
        job_ids.sort(key=lambda one: (not rows[one].holds_nodes, one in before, asked_before.get(one, 0)))
        for number, job_id in enumerate(job_ids):
            row = rows[job_id]
            asked = number < MOST_ALONE and self._monotonic() < until
            text = self._alone(job_id) if asked else None
            self._asked[job_id] = asked_before.get(job_id, 0) + asked
            now = details(_own_record(text, job_id), row) if text is not None else None
            if now is None:
                now = before[job_id].details if job_id in before else unknown(self._utc())
            found[job_id] = self._read(row, printed[job_id] if text is not None else "", now)
        lacking = sum(not found[job_id].details.gpus_known for job_id in job_ids)
        if lacking:
            _LOG.info("event=job_details_unknown jobs=%d effect=no_fault_of_a_gpu_is_linked_to_them", lacking)

    def _utc(self) -> datetime:
        return datetime.fromtimestamp(self._now(), UTC)

    def _read(self, row: SqueueRow, printed: str, found: Details) -> _Read:
        return _Read(row, printed, found, parse.job(row, self._cluster, found))


def _own_record(text: str, job_id: int) -> str:
    """The job's record in an answer for this job alone: the first one, or the only one with its id. No other user's text is in it."""
    if text.startswith(f"JobId={job_id} "):
        return text
    found = records.jobs(text).get(str(job_id), [])
    return found[0] if len(found) == 1 else ""


class Stillness:
    """Check whether the listing without details is enough: it is unchanged since two readings with details showed the same jobs.

    With details, which name the GPUs that a job holds, ``scontrol`` makes slurmctld also list all nodes as soon as one job runs."""

    def __init__(self) -> None:
        self._jobs: Mapping[int, Job] = {}
        self._details = b""
        """Digest of the listing with details; empty: not read yet."""
        self._listing = b""
        """Digest of the listing without details at that time; empty: not requested."""
        self._same = False

    @property
    def may_last(self) -> bool:
        """Whether the last reading with details showed nothing new: then the listing without details should be tried first."""
        return self._same

    def jobs(self, listing: str) -> dict[int, Job] | None:
        """All jobs by id where nothing has changed; None: they have to be read with their details."""
        return dict(self._jobs) if self._listing and self._listing == _digest(listing) else None

    def read(self, jobs: Mapping[int, Job], details: str, listing: str) -> None:
        """Record a reading with details, and the listing without them right before it; empty: not requested."""
        digest = _digest(details)
        self._same = digest == self._details and jobs == self._jobs
        self._listing = _digest(listing) if self._same and listing else b""
        self._jobs, self._details = jobs, digest


def _digest(listing: str) -> bytes:
    """Digest of the records without values that change all the time."""
    return hashlib.blake2b(records.still(listing).encode("utf-8", "surrogateescape"), digest_size=16).digest()
