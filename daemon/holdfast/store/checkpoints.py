"""Apply a job's statements to its checkpoint record. Pure.

A registration, or the first progress report, binds a job id to a uid. Statements of another uid or of an older run change nothing, nor
does a statement about checkpoints before any registration. Slurm reuses job ids: a registration by another uid, or one whose Restarts
went back, starts a new record only after the old one had no statement for :data:`REUSE_AFTER` (or had registered nothing); until then it
is rejected. The cost of this rule is a job whose checkpoints stay unknown; without it, a job could be recovered on the basis of another
user's statement."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from holdfast.model.agents.report import Statement
from holdfast.model.book import CheckpointRecord
from holdfast.model.jobs.surveys import SURVEYED, survey_of
from holdfast.store import progress

SAVE_MAX_S = 24 * 3600
"""Longest accepted duration of a save; a longer one is ignored."""
REUSE_AFTER = timedelta(hours=24)
"""Slurm reuses an id only after all others (MaxJobId, 67 million by default) or when its state was lost."""

MOST_JOBS = 300
"""Limit of records per node for jobs that Slurm does not show there: an agent may name any job."""
MOST_UNKNOWN = 3000
"""The same limit for all jobs, while it is not known what Slurm shows."""


def surplus(stated: Mapping[int, datetime], shown: Collection[int] | None) -> list[int]:
    """Jobs of one node whose records are deleted: the oldest of those that Slurm does not show there. ``shown``: None: not known.

    A job that has just started is not shown yet; it is among the newest."""
    rest = sorted((at, job) for job, at in stated.items() if shown is None or job not in shown)
    return [job for _, job in rest[: max(0, len(rest) - (MOST_UNKNOWN if shown is None else MOST_JOBS))]]


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A record with fields that only the store needs."""

    record: CheckpointRecord
    stated_at: datetime
    """Time of its newest statement."""
    saved_restarts: int
    """Run that reported the newest saved step."""


def state(
    kept: StoredCheckpoint | None, said: Statement, received_at: datetime, node: str = ""
) -> StoredCheckpoint | str:
    """Apply a statement. Returns the new record, or one line that says why the statement changes nothing.

    ``node``: whose agent sent it; ``kept``: that node's record before; ``received_at``: now. A statement dated after now was made before
    the clock was set back, and precedes everything since. Each node has its own record: an agent may claim any uid and job, so its
    statements must neither count as another node's nor replace them."""
    if kept is None or _reused(kept, said):
        return _begin(said, node)
    if said.uid != kept.record.uid:
        return f"job {said.job_id} is registered by uid {kept.record.uid}, not by uid {said.uid}"
    if said.kind == SURVEYED:
        return _surveyed(kept, said)
    if said.restarts < kept.record.restarts:
        return f"run {said.restarts} of job {said.job_id} is over: run {kept.record.restarts} has spoken"
    record = _told(kept, said, received_at)
    if isinstance(record, str):
        return record
    saved_restarts = said.restarts if said.kind == "checkpoint.saved" else kept.saved_restarts
    return StoredCheckpoint(replace(record, restarts=said.restarts), max(said.at, kept.stated_at), saved_restarts)


def _surveyed(kept: StoredCheckpoint, said: Statement) -> StoredCheckpoint | str:
    """Apply the agent's survey of the directory: it says nothing about the job's run, and registers nothing."""
    known = kept.record.survey
    if not said.path or (known is not None and said.restarts < known.restarts):
        return f"a survey of job {said.job_id} names no directory, or is older than another"
    survey = survey_of(said.path, said.restarts, said.detail)
    record = replace(kept.record, survey=survey, surveyed_at=said.at)
    if known is not None and known.directory == survey.directory and not (survey.known or survey.complete):
        record = replace(kept.record, survey=replace(known, problem=survey.problem))  # an earlier survey had seen it
    return replace(kept, record=record, stated_at=max(said.at, kept.stated_at))


def _reused(kept: StoredCheckpoint, said: Statement) -> bool:
    """Whether the job id was reused. A progress report does not replace a registration."""
    stranger = said.uid != kept.record.uid or said.restarts < kept.record.restarts
    silent = said.at - kept.stated_at >= REUSE_AFTER
    if kept.record.directory:
        return stranger and silent and said.kind == "checkpoint.register"
    return stranger and (said.kind == "checkpoint.register" or (said.kind == "progress" and silent))


def _begin(said: Statement, node: str) -> StoredCheckpoint | str:
    if said.kind == "progress" and said.step is not None:
        only = CheckpointRecord(said.job_id, said.uid, said.restarts, directory="", fenced=False, node=node)
        return StoredCheckpoint(progress.told(only, said), said.at, said.restarts)
    if said.kind == SURVEYED:
        only = CheckpointRecord(said.job_id, said.uid, said.restarts, directory="", fenced=False, node=node)
        return _surveyed(StoredCheckpoint(only, said.at, said.restarts), said)
    if said.kind != "checkpoint.register" or not said.path:
        return f"job {said.job_id} has registered no checkpoint directory: {said.kind} is ignored"
    record = CheckpointRecord(
        job_id=said.job_id,
        uid=said.uid,
        restarts=said.restarts,
        directory=said.path,
        fenced=said.detail.get("fenced") is True,
        save_signal=_signal(said),
        save_s=_save_s(said),
        node=node,
        registered_at=said.at,
    )
    return StoredCheckpoint(record, said.at, said.restarts)


def _told(kept: StoredCheckpoint, said: Statement, received_at: datetime) -> CheckpointRecord | str:
    record = kept.record
    if said.kind == "checkpoint.register":
        return _registered_again(record, said)
    if said.step is None:
        return f"{said.kind} of job {said.job_id} names no step"
    if said.kind != "progress" and not record.directory:
        return f"job {said.job_id} has registered no checkpoint directory: {said.kind} is ignored"
    if said.kind == "checkpoint.saved":
        if said.restarts <= kept.saved_restarts and record.saved_step is not None and said.step < record.saved_step:
            return f"job {said.job_id} has saved step {record.saved_step} already: {said.step} is older"
        return replace(record, saved_step=said.step, saved_at=said.at)
    if said.kind == "checkpoint.resumed":
        again = said.restarts == record.resumed_restarts
        return replace(
            record,
            resumed_step=said.step,
            resumed_at=said.at,
            resumed_restarts=said.restarts,
            reached_step=record.reached_step if again else record.progress_step,
        )
    if said.kind == "progress":
        told_at = record.progress_at
        if told_at is not None and said.restarts == record.restarts and said.at < told_at <= received_at:
            return f"job {said.job_id} has reported later progress already"
        return progress.told(record, said)
    return f"unknown statement {said.kind!r}"


def _registered_again(record: CheckpointRecord, said: Statement) -> CheckpointRecord | str:
    if not said.path:
        return f"a registration of job {said.job_id} names no directory"
    # Options of sbatch (sent first, by the SPANK plug-in) hold where the job's own library does not set them.
    same_run = record if said.restarts == record.restarts else replace(record, save_signal=None, save_s=None)
    again = replace(
        record,
        directory=said.path,
        fenced=said.detail.get("fenced") is True,
        save_signal=_signal(said) or same_run.save_signal,
        save_s=_save_s(said) or same_run.save_s,
        registered_at=said.at,
        several=said.restarts == record.restarts and (record.several or said.path != record.directory != ""),
    )
    if said.path == record.directory:
        return again
    return replace(again, saved_step=None, saved_at=None)  # a path elsewhere is not this directory's newest


def _signal(said: Statement) -> str | None:
    name = said.detail.get("save_signal")
    return name if isinstance(name, str) and name else None


def _save_s(said: Statement) -> float | None:
    """An interval; 0, which the SPANK plug-in sends for "not set", becomes None."""
    seconds = said.detail.get("save_s")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= SAVE_MAX_S:
        return None
    return float(seconds)
