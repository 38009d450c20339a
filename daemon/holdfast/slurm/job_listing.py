"""All jobs of ``scontrol show job -d -o``. A record that reads as it did the last time is neither judged nor parsed again.

Of ten thousand jobs few change between two readings: what a reading costs grows with those."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.model.cluster import Job
from holdfast.slurm import parse, records
from holdfast.slurm.records import OwnTexts, Record


@dataclass(frozen=True, slots=True)
class Listed:
    """Jobs whose records are beyond doubt, and the ids of the others."""

    jobs: Mapping[int, Job]
    doubtful: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Read:
    own: OwnTexts
    job: Job


class JobListing:
    """Remembers the records of the last reading that were beyond doubt. Safe to call from several threads."""

    def __init__(self) -> None:
        self._known: dict[str, _Read] = {}

    def unchanged(self, text: str) -> dict[int, Job] | None:
        """The jobs by id if each record is known from the last reading; None where one is new.

        Then no user's text is new either: one that forges a record makes the record around it a new one."""
        known = self._known
        jobs: dict[int, Job] = {}
        for record in records.split(text):
            read = known.get(record.key)
            if read is None or record.job_id in jobs:
                return None
            jobs[record.job_id] = read.job
        return dict(sorted(jobs.items()))

    def read(self, text: str, texts: Mapping[int, OwnTexts], cluster: str) -> Listed:
        """``texts``: users' own texts of this moment, see :func:`records.own_texts`. Raises Rejected as :func:`parse.job`."""
        text = records.without_texts(text, texts.values())
        known, cleaned = self._known, dict[str, str]()

        def old(record: Record) -> _Read | None:
            read = known.get(record.key)
            return read if read is not None and read.own == texts.get(record.job_id) else None

        def beyond_doubt(record: Record) -> bool:
            if old(record) is not None:
                return True
            clean = records.clean(record.text, texts[record.job_id])
            if clean is not None:
                cleaned[record.key] = clean
            return clean is not None

        split = records.judge(records.split(text), texts, beyond_doubt)
        kept: dict[int, tuple[str, _Read]] = {}
        for job_id, record in sorted(split.sure.items()):
            own = texts[job_id]
            read = old(record) or _Read(own, parse.job(cleaned[record.key], cluster, own))
            kept[job_id] = record.key, read
        self._known = dict(kept.values())
        return Listed({job_id: read.job for job_id, (_, read) in kept.items()}, split.doubtful)
