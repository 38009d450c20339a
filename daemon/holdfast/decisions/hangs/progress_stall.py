"""Progress stall: time since a run last reported progress, and the limit for it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from holdfast.decisions.common import node_agents
from holdfast.decisions.hangs import silent_fabric
from holdfast.model.book import CheckpointRecord, World
from holdfast.model.slurm.cluster import Job

STEPPING = frozenset({"", "step"})
"""Phases in which steps are due. The empty one is that of a job that reports no phases."""
BOUNDED = frozenset({"init", "heal"})
"""Phases with their own time limit. Every other phase (waiting, checkpoint, leaving, one defined by the user) may last."""


PAST_S = 2.0
"""Progress is reported once a second: a group that reported a step this much later than another one is past the step that the other is
in."""
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Quiet:
    """Time since a run last reported progress, and the limit for it."""

    since: datetime
    """The job's own last sign: a step, another phase, a checkpoint."""
    counts_from: datetime
    """Not before this controller listened and the agents reported."""
    patience_s: float
    known_until: datetime
    """Progress arrives with the agents' heartbeats: what the run reported after the oldest of the latest heartbeats may still be in flight,
    and so may progress that waits on a node for longer."""
    phase: str
    step: int | None
    fabric_since: datetime | None = None
    """Set if the limit is shorter because its fabric is silent: the start of that silence."""
    told: bool = True
    """Whether the run reported anything at all; else ``since`` is the start of its fabric's silence."""

    @property
    def due(self) -> datetime:
        return self.counts_from + timedelta(seconds=self.patience_s)

    def hangs(self, now: datetime) -> bool:
        return min(now, self.known_until) > self.due


def quiet(world: World, job: Job) -> Quiet | None:
    """Time without progress of a running job. None: it no longer runs, has not reported enough to judge by, may pause, or an agent of it is
    not reporting."""
    told = words_of(world, job)
    if job.state != "RUNNING" or world.frozen is not None or world.listening_since is None or not told:
        return None
    newest = newest_of(told)
    patience_s = _patience_s(world, newest, told)
    last = sign_of(told)
    heard = [agent for r in told if (agent := node_agents.agent_of(world, r.node)) is not None]
    if patience_s is None or last is None or _some_silent(world, job) or len(heard) < len(told):
        return None
    counts_from = max(_listened_since(job, world.listening_since, last), *(agent.first_heard for agent in heard))
    known_until = min(agent.heard_until for agent in heard)
    told_of = Quiet(last, counts_from, patience_s, known_until, newest.phase, newest.progress_step)
    since = silent_fabric.silent_since(world, job) if not newest.phase else None
    return told_of if since is None else min(told_of, _with_fabric(world, told_of, since, told), key=lambda q: q.due)


def last_sign(world: World, job: Job) -> tuple[datetime, float] | None:
    """Time of the run's last progress and its limit in s, no matter which agents report now. None: as :func:`quiet`."""
    told = words_of(world, job)
    if not told:
        silent = only_silent(world, job)
        return None if silent is None else (silent.since, silent.patience_s)
    last, patience_s = sign_of(told), _patience_s(world, newest_of(told), told)
    return None if last is None or patience_s is None else (last, patience_s)


def _with_fabric(world: World, found: Quiet, since: datetime, told: Iterable[CheckpointRecord]) -> Quiet:
    """No step and no traffic: two signals agree, and ``silent_s`` takes the place of the long floor."""
    patience_s = max(world.policy.hangs.silent_s, world.policy.hangs.steps * (_longest_s(told) or 0.0))
    return replace(found, counts_from=max(found.counts_from, since), patience_s=patience_s, fabric_since=since)


def only_silent(world: World, job: Job) -> Quiet | None:
    """Stall of a run that never reported progress but whose fabric, which it has used, is silent."""
    if job.state != "RUNNING" or world.frozen is not None or world.listening_since is None:
        return None
    since = silent_fabric.silent_since(world, job)
    if since is None or words_of(world, job):
        return None
    counts_from = _listened_since(job, world.listening_since, since)
    return Quiet(since, counts_from, world.policy.hangs.silent_s, world.now, "", None, fabric_since=since, told=False)


def _listened_since(job: Job, *times: datetime) -> datetime:
    """The newest of these and of the run's last resume: what is suspended takes no step."""
    return max((*times, *(part.suspend_time for part in job.components if part.suspend_time is not None)))


def words_of(world: World, job: Job) -> tuple[CheckpointRecord, ...]:
    """Progress that this run reported, one record for each of its nodes that reported any."""
    return tuple(
        record
        for part in job.components
        for record in world.book.progress_of(part.key.job_id, job.uid, part.nodes, job.speaks_since)
        if record.progress_restarts == job.restarts and record.progress_at is not None
    )


def step_past(world: World, jobs: Iterable[Job], since: datetime) -> bool:
    """Whether one of these jobs has made a step so much later than this time that it is past the step of the job that last reported
    then."""
    steps = (record.step_at for job in jobs for record in words_of(world, job))
    return any(at is not None and at > since + timedelta(seconds=PAST_S) for at in steps)


def newest_of(told: Iterable[CheckpointRecord]) -> CheckpointRecord:
    """The latest of these records; at least one is needed."""
    return max(told, key=lambda r: r.progress_at or _NEVER)


def sign_of(told: Iterable[CheckpointRecord]) -> datetime | None:
    """Time of the latest progress: a new step, another phase, a checkpoint. The same step reported again does not count."""
    times = (at for r in told for at in (r.step_at, r.phase_at, r.saved_at, r.resumed_at) if at is not None)
    return max(times, default=None)


def _patience_s(world: World, newest: CheckpointRecord, told: Iterable[CheckpointRecord]) -> float | None:
    """Longest time in s that the run may report no progress; None: no limit, or not known."""
    policy = world.policy.hangs
    if newest.phase in BOUNDED:
        return policy.init_s
    longest = _longest_s(told)
    if newest.phase not in STEPPING or longest is None:
        return None
    return max(policy.floor_s if newest.phase else policy.plain_floor_s, policy.steps * longest)


def _longest_s(told: Iterable[CheckpointRecord]) -> float | None:
    """Its longest step or pause so far."""
    return max((s for r in told for s in (r.longest_step_s, r.progress_gap_s) if s), default=None)


def _some_silent(world: World, job: Job) -> bool:
    """Whether the agent of a node has reported but does not now: the node or the network is the suspect."""
    return any(
        world.agents.get(n) and node_agents.agent_of(world, n) is None for part in job.components for n in part.nodes
    )
