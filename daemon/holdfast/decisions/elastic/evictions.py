"""Evictions of groups from their rendezvous, so that the others need not wait for one that will not come back. Pure.

Two grounds. *Its run will be stopped*: a requeue or DOWN was decided, or its node was drained for a fatal fault that affects it. *Its run
is over in Slurm*, and the rendezvous was not notified. Members whose names Holdfast did not give are never evicted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.decisions.brakes.overtaking import overtakes
from holdfast.decisions.brakes.planned_steps import forbids, restricts
from holdfast.decisions.common import gpu_link, node_incidents, slurm_view
from holdfast.decisions.common.elastic_jobs import ReplicaGroup, elastic_jobs, elastic_spec
from holdfast.decisions.common.node_policy import least_of
from holdfast.decisions.elastic.naming import known_room, outlived
from holdfast.decisions.planned import notices
from holdfast.model.actions.action import Drain, Intent, IntentState, Requeue, SetDown
from holdfast.model.book import World
from holdfast.model.elastic_jobs.rooms import GroupRun, RoomView, run_of
from holdfast.model.ids import slurm_reason
from holdfast.model.incidents.incident import Incident
from holdfast.model.operators.proposals import StepKind
from holdfast.model.policies.policy import Mode
from holdfast.model.slurm.cluster import ClusterView, Job
from holdfast_checks.result import Severity

COMPLETING_S = 2.0
"""A run that is being ended gets this long to leave on its own: then the others still know which step it finished."""
ABSENT_S = 10.0
"""Least time between the first reading that lacks a job and the last one. A missing job may be an incomplete answer of Slurm; a job that
ended is shown for MinJobAge."""
_UNDER_WAY = frozenset({IntentState.PLANNED, IntentState.STARTED, IntentState.DONE})

Fading = Mapping[tuple[str, GroupRun], datetime]
"""(rendezvous, run) → time since which the run looks over, or the first reading that lacks its job; other runs are not included."""
Met = Mapping[tuple[str, GroupRun], datetime]
"""(rendezvous, run) → time when the run was first read in it."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """One run of a group, to be fenced for good."""

    room: str
    run: GroupRun
    reason: str
    """One line; starts with ``holdfast[INCIDENT]: `` if an incident is the ground."""
    incident_id: str | None = None


@dataclass(frozen=True, slots=True)
class _Ground:
    reason: str
    incident_id: str | None = None
    grace_s: float = 0.0
    absent: bool = False
    """Slurm does not show the job: time passes from reading to reading only."""


def met_in(rooms: Iterable[RoomView], read_at: datetime, before: Met) -> Met:
    """Runs that are in the rendezvous now. ``read_at``: when the reading started; ``before``: result of the previous reading."""
    runs = ((room.name, run) for room in rooms for name in room.known if (run := run_of(name)) is not None)
    return {each: before.get(each, read_at) for each in runs}


def due(world: World, rooms: Iterable[RoomView], met: Met, fading: Fading) -> tuple[tuple[Eviction, ...], Fading]:
    """Evictions that the quorum service does not have yet, and the runs that look over now (for the next call).

    ``met``: a run is over only if a view of Slurm newer than its first reading in the rendezvous shows it; it may have started after an
    older view. The view is always older than the newest reading, so that reading cannot be used."""
    view = slurm_view.fresh_view(world)
    if view is None:
        return (), fading
    found: list[Eviction] = []
    still: dict[tuple[str, GroupRun], datetime] = {}
    shown = _shown_runs(world, view)
    for room in rooms:
        if outlived(room, view, world.book.rooms):
            continue  # the runs that Slurm shows under its members' job ids are those of another job
        for run in _open_runs(room, shown.get(room.name, ())):
            met_at = met.get((room.name, run))
            ground = _will_be_stopped(world, view, run) or (
                _is_over(world, view, run) if met_at is not None and view.read_at > met_at else None
            )
            if ground is None:
                continue
            now = view.read_at if ground.absent else world.now
            since = still[room.name, run] = fading.get((room.name, run), now)
            if now - since >= timedelta(seconds=ground.grace_s):
                found.append(_eviction(room, run, ground))
    return tuple(found), still


def _open_runs(room: RoomView, shown: Iterable[GroupRun]) -> Iterator[GroupRun]:
    runs = {*shown, *(run for name in room.known if (run := run_of(name)) is not None)}
    return (run for run in sorted(runs, key=lambda r: r.selector) if run.selector not in room.gone)


def _shown_runs(world: World, view: ClusterView) -> Mapping[str, Sequence[GroupRun]]:
    """Rendezvous → runs that Slurm shows and a stop ends, including those forgotten after a long silence."""
    return {
        known_room(world, job).room: [
            run for run in map(_run_of_group, job.running) if _will_be_stopped(world, view, run) is not None
        ]
        for job in (elastic_jobs(view) if _stops_under_way(world) else ())
    }


def _run_of_group(group: ReplicaGroup) -> GroupRun:
    return GroupRun(group.index, group.job.key.job_id, group.job.restarts)


def _eviction(room: RoomView, run: GroupRun, ground: _Ground) -> Eviction:
    text = ground.reason if ground.incident_id is None else slurm_reason(ground.incident_id, ground.reason)
    return Eviction(room.name, run, text, ground.incident_id)


# It will be stopped


def _will_be_stopped(world: World, view: ClusterView, run: GroupRun) -> _Ground | None:
    """In observe mode, and by what waits while Holdfast is paused, no run is stopped, so none is shut out for it."""
    job = view.jobs.get(run.job_id)
    for intent in _stops_under_way(world):
        if (reason := _stops(world, view, intent, run, job)) is not None:
            return _Ground(reason, intent.incident_id)
    return None


def _stops_under_way(world: World) -> list[Intent]:
    if world.policy.mode is Mode.OBSERVE:
        return []
    stops = (i for i in world.book.intents.values() if isinstance(i.action, Requeue | SetDown | Drain))
    under_way = (i for i in stops if i.state in _UNDER_WAY and not _waits(world, i))
    return sorted(under_way, key=lambda i: (i.planned_at, i.order, i.key))


def _waits(world: World, intent: Intent) -> bool:
    """Whether the actor will not start this step now. A drain ends no run: one that is done counts only while runs may be stopped."""
    if world.book.paused is not None:
        return intent.state is IntentState.PLANNED or isinstance(intent.action, Drain)
    return intent.state is IntentState.PLANNED and (_overtaken(world, intent) or _forbidden(world, intent))


def _forbidden(world: World, intent: Intent) -> bool:
    """Whether the actor will not begin it: by a node set, or for want of an operator's accept."""
    if world.view is None or not restricts(world.policy):
        return False
    key = intent.action.target.job
    job = world.view.jobs.get(key.job_id) if key is not None else None
    return forbids(world.policy, world.book, intent, world.view.nodes, job) is not None


def _overtaken(world: World, intent: Intent) -> bool:
    """Whether an operator has taken the incident over since, or a brake has tripped (a DOWN does not wait for brakes)."""
    incident = world.book.incidents.get(intent.incident_id)
    if incident is not None and (incident.acknowledged or not incident.open):
        return True
    return overtakes(world.book, intent)


def _stops(world: World, view: ClusterView, intent: Intent, run: GroupRun, job: Job | None) -> str | None:
    """Reason why this intent ends the run; None: it does not."""
    action = intent.action
    if job is not None and job.restarts == run.restarts and intent.planned_at < job.key.submit_time:
        return None  # for an earlier job with this id
    if isinstance(action, Requeue):
        mine = (action.job.job_id, action.job.cluster, action.restarts) == (run.job_id, view.cluster, run.restarts)
        return f"the run is requeued: {intent.reason}" if mine and not _may_go_on(world, intent) else None
    if job is None or not isinstance(action, SetDown | Drain):
        return None
    if not _held_before(job, run, action.node, intent.planned_at):
        return None
    if isinstance(action, SetDown):
        return f"node {action.node} is set DOWN" if action.jobs is None or run.job_id in action.jobs else None
    incident = world.book.incidents.get(intent.incident_id)
    if incident is None or not _ends_jobs(world, incident, job) or _asked_first(world, action.node, job):
        return None
    return None if _withheld(world, run, job) else f"node {action.node}: {incident.headline}"


def _may_go_on(world: World, intent: Intent) -> bool:
    """Whether the stop of a hung job may still be dropped: the job may report a step meanwhile, and the actor checks again before it
    starts."""
    incident = world.book.incidents.get(intent.incident_id)
    return intent.state is IntentState.PLANNED and incident is not None and incident.hangs


def _held_before(job: Job, run: GroupRun, node: str, at: datetime) -> bool:
    """Whether this very run held the node when that was decided."""
    began = job.start_time
    return (
        job.restarts == run.restarts
        and node in job.nodes
        and slurm_view.holds(job)
        and began is not None
        and began <= at
    )


def _ends_jobs(world: World, incident: Incident, job: Job) -> bool:
    """Whether the incident ends the job: with a fatal fault, its end is not waited for. A machine with an announced end leaves its groups
    the time to leave on their own."""
    fatal = node_incidents.acting(incident) and incident.severity is Severity.FATAL and not incident.resumed_in_doubt
    return fatal and gpu_link.hits(world, incident, job) and not notices.planned(world, incident)


def _asked_first(world: World, node: str, job: Job) -> bool:
    """Whether no run may be stopped here, or an operator has to accept that: a drain, accepted or not, is no leave to do so."""
    policy = least_of((node, *job.nodes), world)
    return policy.mode is Mode.OBSERVE or StepKind.STOP_JOB in policy.asks


def _withheld(world: World, run: GroupRun, job: Job) -> bool:
    """Whether a brake keeps this run from being stopped: then it is not evicted from its rendezvous either."""
    return any(
        isinstance(i.action, Requeue)
        and i.state in (IntentState.WITHHELD, IntentState.REFUSED)
        and (i.action.job.job_id, i.action.restarts) == (run.job_id, run.restarts)
        and i.planned_at >= job.key.submit_time
        for i in world.book.intents.values()
    )


# It is over


def _is_over(world: World, view: ClusterView, run: GroupRun) -> _Ground | None:
    incident = _recovered_for(world, run)
    job = view.jobs.get(run.job_id)
    if job is None:
        return _Ground(f"Slurm no longer knows job {run.job_id}", incident, ABSENT_S, absent=True)
    if job.restarts > run.restarts:
        return _Ground(f"job {run.job_id} was requeued", incident)
    if job.restarts < run.restarts:
        return None
    if job.state == "COMPLETING":
        return _Ground(f"job {run.job_id} is COMPLETING", incident, COMPLETING_S)
    if job.state in slurm_view.ENDED or job.state in slurm_view.FAILED:
        return _Ground(f"job {run.job_id} ended: {job.state}", incident)
    return None


def _recovered_for(world: World, run: GroupRun) -> str | None:
    """The incident for which this run was stopped, if one was the ground."""
    mine = (
        r for r in world.book.recoveries.values() if (r.job.job_id, r.restarts_before) == (run.job_id, run.restarts)
    )
    return next((r.incident_id for r in mine), None)


# Rendezvous that no job needs any more

CLOSE_AFTER = timedelta(minutes=10)


def forsaken(
    world: World, rooms: Iterable[RoomView], before: Mapping[str, datetime]
) -> tuple[tuple[str, ...], Mapping[str, datetime]]:
    """Rendezvous of jobs that Slurm has not shown for ten minutes, and the start of each such time (for the next call). A later job with
    the id of one of them is another job."""
    view = slurm_view.fresh_view(world)
    if view is None:
        return (), {}  # what was not seen for a while starts again
    there = _arrays(view)
    since = {
        room.name: before.get(room.name, world.now)
        for room in rooms
        if (name := room.name_of_job) is not None
        and (name.base_array_id not in there or outlived(room, view, world.book.rooms))
    }
    return tuple(name for name, at in since.items() if world.now - at >= CLOSE_AFTER), since


def _arrays(view: ClusterView) -> frozenset[int]:
    """Base arrays that Slurm still shows something of, also by a flexible array that names them."""
    shown: set[int] = set()
    for job in view.jobs.values():
        shown |= {job.key.job_id, job.array_job_id or 0}
        if (spec := elastic_spec(job)) is not None and spec.of is not None:
            shown.add(spec.of)
    return frozenset(shown)
