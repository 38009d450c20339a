"""Checkpoints of a run, as the job reports them or as a survey of its directory found them. Pure.

"Nothing newer was saved" needs a job whose library reports each save, or a survey that started when the run was over or about to be.
Anything else counts as not known, and no decision against the job rests on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from holdfast.decisions.common import job_checkpoints
from holdfast.decisions.recovery import checkpoint_surveys
from holdfast.model.book import CheckpointRecord, World
from holdfast.model.elastic_jobs.elastic import declares_elastic
from holdfast.model.incidents.incident import Recovery
from holdfast.model.slurm.cluster import Job


@dataclass(frozen=True, slots=True)
class Complete:
    """A complete checkpoint that a survey has found."""

    step: int | None
    at: datetime | None
    """When it was written, by the file server's clock; None: not known."""


def by_now(world: World, job: Job) -> Complete:
    """The newest checkpoint that is known of the job now; both None: none is."""
    mine = job_checkpoints.checkpoint_of(world, job)
    step = job_checkpoints.restorable_step(world, job)
    found = found_in(mine)
    if mine is None or not found or declares_elastic(job.comment):
        return Complete(step, mine.saved_at if mine is not None else None)
    seen_later = mine.saved_at is None or (mine.surveyed_at is not None and mine.surveyed_at > mine.saved_at)
    return found[0] if seen_later else Complete(step, mine.saved_at)


def reports_saves(world: World, job: Job) -> bool:
    """Whether the job reports its saves, so that one which it did not report is none."""
    mine = job_checkpoints.checkpoint_of(world, job)
    return declares_elastic(job.comment) or (mine is not None and (mine.fenced or mine.saved_step is not None))


def found_in(mine: CheckpointRecord | None) -> tuple[Complete, ...]:
    """Checkpoints that the newest survey of the currently registered directory found, newest first."""
    if mine is None or mine.survey is None or mine.surveyed_at is None or mine.survey.directory != mine.directory:
        return ()
    at = mine.surveyed_at
    return tuple(
        Complete(w.step, None if w.age_s is None else at - timedelta(seconds=w.age_s)) for w in mine.survey.complete
    )


def learn(world: World, recovery: Recovery, job: Job) -> Recovery:
    """The recovery with what a survey shows that its run had saved; as it is, where nothing new is known.

    The survey was ordered when the run was to be stopped, or was made in the next run, of what is older than that one: such a one also
    finds what was saved between the order and the stop."""
    mine = job_checkpoints.checkpoint_of(world, job)
    if mine is None or mine.survey is None or mine.surveyed_at is None:
        return recovery
    if not mine.survey.known or mine.survey.directory != mine.directory or mine.several:
        return recovery
    found = found_in(mine)
    asked_at = checkpoint_surveys.asked_at(world, recovery)
    if mine.survey.restarts == recovery.restarts_before and asked_at is not None and mine.surveyed_at >= asked_at:
        return recovery if recovery.checkpoint_known else _with(recovery, found)
    if mine.survey.restarts == recovery.restarts_before + 1 == job.restarts and job.start_time is not None:
        earlier = tuple(c for c in found if c.at is not None and c.at <= job.start_time)
        told = recovery.checkpoint_known and not _later(recovery, earlier)
        return _with(recovery, earlier) if not told and (earlier or not found) else recovery
    return recovery


def _later(recovery: Recovery, found: tuple[Complete, ...]) -> bool:
    """Whether one of a later step was found than is known."""
    step = found[0].step if found else None
    return step is not None and (recovery.checkpoint_step is None or step > recovery.checkpoint_step)


def _with(recovery: Recovery, found: tuple[Complete, ...]) -> Recovery:
    newest = found[0] if found else Complete(None, None)
    after = replace(recovery, checkpoint_step=newest.step, checkpoint_at=newest.at, checkpoint_known=True)
    reached = _reached(recovery, found)
    if reached is None or (recovery.stopped_step is not None and not recovery.stopped_estimated):
        return after
    return replace(after, stopped_step=reached, stopped_estimated=True)


def _reached(recovery: Recovery, found: tuple[Complete, ...]) -> int | None:
    """The step that the run was in when it was stopped, by how fast it had saved; None: its last two saves are not known."""
    since = recovery.started_at
    mine = [
        (c.step, c.at) for c in found if c.step is not None and c.at is not None and since is not None and c.at > since
    ]
    if len(mine) < 2:
        return None
    (last, last_at), (before, before_at) = mine[0], mine[1]
    steps, took_s = last - before, (last_at - before_at).total_seconds()
    left_s = (recovery.created_at - last_at).total_seconds()
    if steps <= 0 or took_s <= 0:
        return None
    return last + int(max(left_s, 0.0) / took_s * steps)


@dataclass(frozen=True, slots=True)
class WentOn:
    """Step from which a run resumed that does not report it."""

    step: int | None
    """The checkpoint's step; None: it went back before the newest one."""
    note: str


def went_on(world: World, recovery: Recovery, job: Job, *, waited: bool) -> WentOn | None:
    """Step from which the run after the recovery resumed, as its own saves show; None: not shown yet. ``waited``: it has been waited for
    long enough, and the newest checkpoint is assumed."""
    mine = job_checkpoints.checkpoint_of(world, job)
    start = job.start_time
    if mine is None or not recovery.checkpoint_known or reports_saves(world, job) or start is None:
        return None
    had = recovery.checkpoint_step
    nothing = had is None and recovery.checkpoint_at is None
    of_run = mine.survey is not None and mine.survey.restarts == job.restarts
    new = [c for c in found_in(mine) if of_run and c.at is not None and c.at > start]
    if new and nothing:
        return WentOn(0, "from the start: no checkpoint was there")
    steps = [c.step for c in new if c.step is not None]
    if steps and had is not None:
        if max(steps) > had:
            return WentOn(had, "by its own saves: it reports nothing itself")
        if max(steps) == had and len(steps) == 1:  # many loops save the step that they have loaded once more
            unknown = (
                f"it saved step {had} again and nothing else yet: whether it resumed from that checkpoint is not known"
            )
            return WentOn(None, unknown) if waited else None
        again = " again" if max(steps) == had else ""  # of lower steps it is not known whether they were there before
        return WentOn(
            None,
            f"it saved step {max(steps)}{again} though step {had} was there: it did not resume from that checkpoint",
        )
    if waited and (had is not None or nothing):
        return WentOn(had or 0, "by its newest checkpoint: it reports nothing itself, and has saved nothing since")
    return None


def went_back(recovery: Recovery, job: Job, step: int | None) -> str:
    """Note about a job that reports that it resumed from ``step`` although a later step was saved; empty: none. An elastic group heals from
    its peers, so its own saves do not count."""
    had = recovery.checkpoint_step
    if step is None or had is None or step >= had or declares_elastic(job.comment):
        return ""
    return (
        f"it resumed from step {step} though step {had} was saved: check that its checkpoint directory is mounted on "
        f"{','.join(job.nodes) or 'its nodes'} and holds what was saved"
    )
