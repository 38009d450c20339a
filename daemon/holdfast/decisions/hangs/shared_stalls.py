"""Shared stalls: jobs that stop making progress together, as when a shared file system stalls. Never restarted. Pure.

Two jobs rarely hang by chance within minutes of each other; the cause is something they share. So they are one incident: an operator is
notified once, no job of it is restarted, and no node is suspected. The same holds for a single job if a node of it reports that a file
system does not answer. Another user's jobs, no matter how many, count as one, and those of a single other user do not count while a third
user's job makes progress: one user's jobs cannot block the restart of everyone else's."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from holdfast.decisions.common import slurm_view
from holdfast.decisions.common.elastic_jobs import elastic_of
from holdfast.decisions.common.mounts import LASTS, of_storage, unanswered
from holdfast.decisions.hangs.progress_stall import Quiet, last_sign, step_past
from holdfast.decisions.probing import suspects
from holdfast.model.book import World
from holdfast.model.event import Event
from holdfast.model.ids import NewId
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState
from holdfast.model.incidents.transitions import NewIncident, close, remark
from holdfast.model.policies.hangs import HangPolicy
from holdfast.model.slurm.cluster import ClusterView, Job, JobRun
from holdfast_checks.result import Remedy, Severity

STOPPED_SHARE, USUAL_SHARE = 0.5, 0.2
"""Shares of a job's patience (five of its longest steps, or a floor). From the first on, a job counts as stopped if another one hangs; up
to the second, its pause is normal. In between it is unknown."""
_FEW = 8
"""Most jobs named in a headline; the others are only counted."""


# The rule


class PauseMeaning(StrEnum):
    """Meaning of a job's pause."""

    MOVES = "moves"
    UNCLEAR = "unclear"
    STOPPED = "stopped"


class StallVerdict(StrEnum):
    """Relation of a hung job to the other jobs."""

    ALONE = "alone"
    """It hangs alone."""
    UNCLEAR = "unclear"
    """Others may have stopped with it: it is not restarted before that is known."""
    STALL = "stall"
    """Something they share has stopped them."""


@dataclass(frozen=True, slots=True)
class Pause:
    """For how long a job has made no progress, and how long it may."""

    number: int
    """Number of the job; all groups of an elastic job have the same one."""
    since: datetime
    quiet_s: float
    patience_s: float
    uid: int
    """Whose job it is."""

    @property
    def progress(self) -> PauseMeaning:
        if self.quiet_s >= self.patience_s * STOPPED_SHARE:
            return PauseMeaning.STOPPED
        return PauseMeaning.UNCLEAR if self.quiet_s > self.patience_s * USUAL_SHARE else PauseMeaning.MOVES


def judge(policy: HangPolicy, mine: Pause, others: Iterable[Pause], *, unanswered: bool) -> StallVerdict:
    """``mine``: of a job that hangs. ``unanswered``: a node of it reports a file system that does not answer. One that stopped long before
    or after, within which time this one's step would have ended, is another event."""
    if unanswered:
        return StallVerdict.STALL
    if policy.together_jobs == 0:
        return StallVerdict.ALONE
    window = timedelta(seconds=policy.together_s)
    others = list(others)
    near = [o for o in others if o.number != mine.number and abs(o.since - mine.since) <= window]
    moving = frozenset(o.uid for o in others if o.progress is PauseMeaning.MOVES)
    stopped = [o for o in near if o.progress is PauseMeaning.STOPPED]
    if _together(mine.uid, stopped, moving) + 1 >= policy.together_jobs:
        return StallVerdict.STALL
    maybe = [o for o in near if o.progress is not PauseMeaning.MOVES]
    return (
        StallVerdict.UNCLEAR if _together(mine.uid, maybe, moving) + 1 >= policy.together_jobs else StallVerdict.ALONE
    )


def _together(uid: int, pauses: Iterable[Pause], moving: frozenset[int]) -> int:
    """Number of pauses that count for a job of this user. ``moving``: users with a job that makes progress."""
    jobs = {(o.uid, o.number) for o in pauses}
    others = {of for of, _ in jobs} - {uid}
    if len(others) == 1 and moving - others - {uid}:  # what stopped both would have stopped the third one as well
        jobs = {each for each in jobs if each[0] == uid}
    return _witnesses(uid, jobs)


def _witnesses(uid: int, jobs: Iterable[tuple[int, int]]) -> int:
    """Number of witnesses among these jobs (user, number) for a job of this user: each other user counts as one. A user with many hung jobs
    holds up only their own."""
    return len({(of, number if of == uid else 0) for of, number in jobs})


# What of it there is now


Found = tuple[Job, Quiet]


def verdict(world: World, view: ClusterView, mine: Found, found: Iterable[Found]) -> StallVerdict:
    """Verdict on a hung job, given all jobs whose pauses are known. During a shared stall, the cause is unknown for a job that stops within
    the hour."""
    named = bool(_unanswered(world, mine[0], mine[1].since))
    if _others_step(world, view, mine) and not named:
        return StallVerdict.ALONE
    others = [_pause(world, view, each) for each in found if not _apart(world, view, each)]
    judged = judge(world.policy.hangs, _pause(world, view, mine), others, unanswered=named)
    lasts = judged is StallVerdict.ALONE and any(_lasts(world, view, i, mine) for i in stalls(world))
    return StallVerdict.UNCLEAR if lasts else judged


def _lasts(world: World, view: ClusterView, incident: Incident, mine: Found) -> bool:
    """Whether enough jobs of the incident are still stalled, the last of them not long before mine stopped."""
    still = _still(world, view, incident)
    signs = (sign[0] for job in still if (sign := last_sign(world, job)) is not None)
    newest = max(signs, default=None)
    if newest is None or mine[1].since - newest > LASTS:
        return False
    return _witnesses(mine[0].uid, ((job.uid, suspects.whole(view, job.key.job_id)) for job in still)) > 1


def _pause(world: World, view: ClusterView, found: Found) -> Pause:
    job, quiet = found
    quiet_s = (min(world.now, quiet.known_until) - quiet.counts_from).total_seconds()
    return Pause(suspects.whole(view, job.key.job_id), quiet.since, quiet_s, quiet.patience_s, job.uid)


def _apart(world: World, view: ClusterView, found: Found) -> bool:
    """Whether something else has stopped it: a fault of its nodes, or it is a group whose job makes progress."""
    job, quiet = found
    fault = suspects.explained(world, job.nodes, quiet.since, apart=of_storage(world))
    return fault is not None or _others_step(world, view, found)


def _others_step(world: World, view: ClusterView, found: Found) -> bool:
    """Whether other groups of its elastic job, which use the same file systems, have made a step since."""
    job, quiet = found
    elastic = elastic_of(view, job.key.job_id)
    if elastic is None:
        return False
    others = (g.job for g in elastic.running if g.job.key.job_id != job.key.job_id)
    return step_past(world, others, quiet.since)


def _unanswered(world: World, job: Job, since: datetime) -> dict[str, list[str]]:
    return unanswered(world, job.nodes, since - timedelta(seconds=world.policy.hangs.together_s))


# The incident


def stalls(world: World) -> list[Incident]:
    """The open ones."""
    watching = IncidentState.WATCHING
    return [i for i in world.book.open_incidents() if i.kind is IncidentKind.STALL and i.state is watching]


def follow_stalls(world: World, view: ClusterView, found: list[Found], new_id: NewId) -> suspects.Changed:
    """Open an incident for jobs that stopped together and belong to none that is open, and move on those. ``found``: all pauses that are
    known."""
    incidents: list[Incident] = []
    events: list[Event] = []
    for incident in stalls(world):
        joined = {run for i in incidents for run in i.stalled}
        changed, seen = _follow(world, view, incident, [each for each in found if each[0].run.text not in joined])
        incidents += changed
        events += seen
    joined = {run for i in incidents for run in i.stalled}
    changed, seen = _opened(world, view, found, joined, new_id)
    incidents += changed
    events += seen
    mine = {run: i for i in incidents if i.open for run in i.stalled}
    for hang in world.book.open_incidents():
        stall = mine.get(hang.job) if hang.hangs and hang.state is IncidentState.WATCHING else None
        if stall is not None:
            closed, more = close(hang, world.now, f"part of incident {stall.id}: jobs stopped together")
            incidents.append(closed)
            events += more
    return incidents, events


def _opened(
    world: World, view: ClusterView, found: list[Found], joined: Container[str], new_id: NewId
) -> suspects.Changed:
    """``joined``: runs that are in an open incident as of now."""
    due = [
        each
        for each in found
        if each[1].hangs(world.now)
        and each[0].run.text not in joined
        and _is_news(world, each)
        and not _apart(world, view, each)
    ]
    first = next((each for each in due if verdict(world, view, each, found) is StallVerdict.STALL), None)
    if first is None:
        return [], []
    members = _with(world, view, [first], [each for each in found if each[0].run.text not in joined])
    nodes = sorted({node for job, _ in members for node in job.nodes})
    check = suspects.CHECKS[IncidentKind.STALL]
    new = NewIncident(
        id=new_id(world.now),
        kind=IncidentKind.STALL,
        node=nodes[0],
        severity=Severity.WARNING,
        remedy=Remedy.NONE,
        check=check,
        headline=f"{check}: {_said(world, members)}",
        fault_at=min(quiet.since for _, quiet in members),
        stalled=tuple(job.run.text for job, _ in members),
        note=_note(members),
    )
    return suspects.one(suspects.open_about_job(world, new, members[0][0].key.text))


def _is_news(world: World, found: Found) -> bool:
    """Whether it was in no such incident since its last progress, and is not being restarted."""
    job, quiet = found
    known = (i for i in world.book.incidents.values() if i.kind is IncidentKind.STALL and job.run.text in i.stalled)
    begun = world.book.recovery_of(job.key, job.restarts)
    return begun is None and not any(i.open or i.fault_at >= quiet.since for i in known)


def _with(world: World, view: ClusterView, members: list[Found], found: Iterable[Found]) -> list[Found]:
    """These, and all that stopped within ``together_s`` of one of them, or whose nodes report a file system that does not answer."""
    window = timedelta(seconds=world.policy.hangs.together_s)
    rest = sorted(
        (each for each in found if each not in members and _may_join(world, view, each)), key=lambda e: e[1].since
    )
    grown = list(members)
    for each in (*rest, *reversed(rest)):
        near = any(abs(each[1].since - quiet.since) <= window for _, quiet in grown)
        if each not in grown and (near or _unanswered(world, each[0], each[1].since)):
            grown.append(each)
    return sorted(grown, key=lambda e: (e[1].since, e[0].key.job_id))


def _may_join(world: World, view: ClusterView, each: Found) -> bool:
    stopped = _pause(world, view, each).progress is PauseMeaning.STOPPED
    return stopped and _is_news(world, each) and not _apart(world, view, each)


def _follow(world: World, view: ClusterView, incident: Incident, found: list[Found]) -> suspects.Changed:
    still = _still(world, view, incident)
    if not still:
        return suspects.one(close(incident, world.now, "its jobs report progress again, or are over"))
    known = [each for each in found if each[0] in still]
    new = [each for each in _with(world, view, known, found) if each not in known] if known else []
    note = f"no progress yet: {_names([*still, *(job for job, _ in new)])}"
    if not new:
        return [replace(incident, note=note)], []
    runs = tuple(job.run.text for job, _ in new)
    event = remark(incident, world.now, f"stopped as well: {_names(job for job, _ in new)}", {"jobs": list(runs)})
    return [replace(incident, stalled=(*incident.stalled, *runs), note=note)], [event]


def _still(world: World, view: ClusterView, incident: Incident) -> list[Job]:
    return [job for job in jobs_of(view, incident) if _stands_still(world, job)]


def _run(view: ClusterView, text: str) -> Job | None:
    run = JobRun.parse(text)
    job = view.jobs.get(run.job_id) if run is not None else None
    return job if job is not None and job.run == run and slurm_view.holds(job) else None


def _stands_still(world: World, job: Job) -> bool:
    """Whether its last progress is as old as before, no matter which agents report now."""
    last = last_sign(world, job)
    return last is not None and (world.now - last[0]).total_seconds() >= last[1] * STOPPED_SHARE


# Texts


def _said(world: World, members: list[Found]) -> str:
    users, nodes = {job.uid for job, _ in members}, {node for job, _ in members for node in job.nodes}
    since = min(quiet.since for _, quiet in members)
    what = f"{len(members)} jobs of {len(users)} user{'s' * (len(users) > 1)} on {len(nodes)} nodes"
    if len(members) == 1:
        job = members[0][0]
        what = f"job {job.key.job_id} of {job.user} on {len(nodes)} node{'s' * (len(nodes) > 1)}"
    stopped = "stopped making progress together" if len(members) > 1 else "makes no progress"
    silent = {
        mount: sorted({*nodes_})
        for job, quiet in members
        for mount, nodes_ in _unanswered(world, job, quiet.since).items()
    }
    mounts = "; ".join(f"{mount} does not answer on {', '.join(on[:_FEW])}" for mount, on in sorted(silent.items()))
    return f"{what} {stopped} since {since:%H:%M:%S} UTC" + (f"; {mounts}" if mounts else "")


def _note(members: Iterable[Found]) -> str:
    return f"no progress yet: {_names(job for job, _ in members)}"


def _names(jobs: Iterable[Job]) -> str:
    named = [f"{job.key.job_id} of {job.user}" for job in jobs]
    return ", ".join(named[:_FEW]) + (f" and {len(named) - _FEW} more" if len(named) > _FEW else "")


def jobs_of(view: ClusterView, incident: Incident) -> list[Job]:
    """Those of its jobs that Slurm still shows running."""
    return [job for run in incident.stalled if (job := _run(view, run)) is not None]
