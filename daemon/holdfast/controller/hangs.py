"""Which jobs hang? Pure.

A job that told of its steps and tells of none any more, for much longer than a step of it ever took. Its incident is only watched: the
stacks of its ranks are read (:mod:`decide.hangs`), the odd ones named, and by policy the job is queued again (:mod:`decide.recover`). A job
that never told of a step never hangs, and neither does one of which too little is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from holdfast.controller import facts, stacks, suspects
from holdfast.controller.decide.hurt import consent
from holdfast.controller.groups import ElasticJob, elastic_of
from holdfast.model.action import Intent, SendOrder, Verb
from holdfast.model.book import Change, CheckpointRecord, World
from holdfast.model.cluster import ClusterView, Job
from holdfast.model.event import Event, EventKind
from holdfast.model.hangs import RESTART
from holdfast.model.incident import Incident, IncidentState

STEPPING = frozenset({"", "step"})
"""Phases in which steps are due. The first is that of a job that tells of no phases."""
BOUNDED = frozenset({"init", "heal"})
"""Phases that have a bound of their own. Every other one (waiting, checkpoint, leaving, a word of the user's) may last."""
PAST_S = 2.0
"""Progress is told once a second: a group that was heard this much later than another one is past the step that the other is in."""

NewId = Callable[[datetime], str]
Step = tuple[list[Incident], list[Event]]


@dataclass(frozen=True, slots=True)
class Quiet:
    """How long a run has told of nothing new, and how long it may."""

    since: datetime
    """The job's own last sign: a step, another phase, a checkpoint."""
    counts_from: datetime
    """Not before this controller listened and the agents were heard."""
    patience_s: float
    phase: str
    step: int | None

    def hangs(self, now: datetime) -> bool:
        return now - self.counts_from > timedelta(seconds=self.patience_s)


def quiet(world: World, job: Job) -> Quiet | None:
    """None: the job runs no longer, has told of nothing to judge by, may pause, or cannot be heard just now."""
    told = words_of(world, job)
    if job.state != "RUNNING" or world.frozen is not None or world.listening_since is None or not told:
        return None
    newest = max(told, key=lambda r: r.progress_at or r.phase_at or world.now)
    patience_s = _patience_s(world, newest, told)
    last = sign_of(told)
    heard = [facts.agent_of(world, r.node) for r in told]
    if patience_s is None or last is None or _some_silent(world, job):
        return None
    first_heard = [agent.first_heard for agent in heard if agent is not None]
    if len(first_heard) < len(told):
        return None
    return Quiet(last, max(last, world.listening_since, *first_heard), patience_s, newest.phase, newest.progress_step)


def words_of(world: World, job: Job) -> tuple[CheckpointRecord, ...]:
    """What this run told of its progress, one record for each of its nodes that told of any."""
    return tuple(
        record
        for part in job.components
        for record in world.book.progress_of(part.key.job_id, job.uid, part.nodes)
        if record.progress_restarts == job.restarts and record.progress_at is not None
    )


def sign_of(told: Iterable[CheckpointRecord]) -> datetime | None:
    """The newest sign of life: a new step, another phase, a checkpoint. The same step told again is none."""
    times = (at for r in told for at in (r.step_at, r.phase_at, r.saved_at, r.resumed_at) if at is not None)
    return max(times, default=None)


def _patience_s(world: World, newest: CheckpointRecord, told: Iterable[CheckpointRecord]) -> float | None:
    """How long the run may be quiet; None: for as long as it likes, or nobody knows."""
    policy = world.policy.hangs
    if newest.phase in BOUNDED:
        return policy.init_s
    longest = max((s for r in told for s in (r.longest_step_s, r.progress_gap_s) if s), default=None)
    if newest.phase not in STEPPING or longest is None:
        return None
    return max(policy.floor_s if newest.phase else policy.plain_floor_s, policy.steps * longest)


def _some_silent(world: World, job: Job) -> bool:
    """The agent of a node was heard once and is not now: the node or the network is the suspect."""
    return any(world.agents.get(n) and facts.agent_of(world, n) is None for part in job.components for n in part.nodes)


# The incident


def follow_hangs(world: World, new_id: NewId) -> Change:
    """Open an incident for each run that hangs from now on, and move on those that are open."""
    view = facts.fresh_view(world)
    if view is None:
        return Change()
    steps = [_follow(world, view, i) for i in hung_incidents(world)]
    steps += [_opened(world, job, found, new_id) for job, found in _new(world, view)]
    return Change(
        incidents=tuple(i for changed, _ in steps for i in changed), events=tuple(e for _, seen in steps for e in seen)
    )


def hung_incidents(world: World) -> list[Incident]:
    return [i for i in world.book.open_incidents() if i.check == facts.HUNG and i.state is IncidentState.WATCHING]


def _new(world: World, view: ClusterView) -> list[tuple[Job, Quiet]]:
    jobs = (view.jobs.get(job_id) for job_id in sorted(world.book.checkpoints))
    found = [
        (job, q) for job in jobs if job is not None and (q := quiet(world, job)) is not None and q.hangs(world.now)
    ]
    if not found:
        return []
    new = [
        (job, q)
        for job, q in found
        if not _known(world, job, q)
        and suspects.explained(world, job.nodes, q.since) is None
        and not _waits_for_a_loss(world, view, job, q)
    ]
    return _within_the_hour(world, view, new)


def _known(world: World, job: Job, found: Quiet) -> bool:
    """Its incident is open, or was closed without a step since. Who has told of one since then may hang again."""
    mine = [i for i in world.book.incidents.values() if i.job == suspects.run_of(job) and i.check in suspects.INQUIRIES]
    return any(i.open or i.fault_at >= found.since for i in mine)


def _within_the_hour(world: World, view: ClusterView, new: list[tuple[Job, Quiet]]) -> list[tuple[Job, Quiet]]:
    """Those of as many jobs as may be looked into within an hour. The groups of an elastic job wait for each other: they are one."""

    counted, most = suspects.looked_into(world, view), world.policy.suspects.jobs_per_hour
    taken = []
    for job, found in new:
        whole = suspects.whole(view, job.key.job_id)
        if whole in counted or len(counted) < most:
            counted.add(whole)
            taken.append((job, found))
    return taken


def _waits_for_a_loss(world: World, view: ClusterView, job: Job, found: Quiet) -> bool:
    """A group of too few, or one after another was lost, while none has made a step since: their collectives have not given it up yet."""
    elastic = _elastic(view, job)
    if elastic is None:
        return False
    others = [group.job for group in elastic.running if group.job.key.job_id != job.key.job_id]
    steps = [r.step_at for other in others for r in words_of(world, other) if r.step_at is not None]
    gone_on = any(at > found.since + timedelta(seconds=PAST_S) for at in steps)
    return elastic.size == 0 or (not gone_on and _settling(world, elastic))


def _elastic(view: ClusterView, job: Job) -> ElasticJob | None:
    """The elastic job that this one is an element of."""
    return elastic_of(view, job.key.job_id)


def _opened(world: World, job: Job, found: Quiet, new_id: NewId) -> Step:
    where = f"in phase {found.phase}" if found.phase in BOUNDED else f"after step {found.step}"
    told = f"has told of no progress since {found.since:%H:%M:%S} UTC, {where}"
    note = "the stacks of its ranks are read"
    incident = suspects.incident_of_job(world, job, facts.HUNG, found.since, told, note, new_id)
    return [incident], suspects.opening(world, incident, job.key.text)


def _follow(world: World, view: ClusterView, incident: Incident) -> Step:
    job = view.jobs.get(suspects.job_id_of(incident))
    if job is None or suspects.run_of(job) != incident.job or not facts.holds(job):
        return _run_is_over(world, incident, completed=_completed(incident, job))
    last = sign_of(words_of(world, job))
    if last is not None and last > incident.fault_at:
        return suspects.close(world, incident, "the job tells of progress again")
    found = read_stacks(world, view, incident, job) if incident.odd is None else None
    if found is None:
        return [], []
    odd = found.odd or (found.ranks if _alone(world, view, job) else ())
    mine = {node for part in job.components for node in part.nodes}
    own = found.odd_nodes if found.odd else tuple(sorted({rank.node for rank in odd}))
    told = f"stacks: {found.text}"
    named = f"; odd: {', '.join(r.name for r in odd)}" if odd else "; nobody stands out"
    detail = {"stacks": [g.text for g in found.groups], "odd": [r.name for r in odd], "nodes": list(own)}
    event = Event(
        world.now, EventKind.INCIDENT_STATE, incident.id, incident.node, text=(told + named)[:1000], detail=detail
    )
    own = tuple(node for node in own if node in mine)
    node = min(own, default=incident.node)
    return [replace(incident, node=node, odd=own, note=(told + named)[:500])], [event]


def _alone(world: World, view: ClusterView, job: Job) -> bool:
    """A group of an elastic job that hangs while the others do not: they have done without it, or wait for it in their room."""
    elastic, found = _elastic(view, job), quiet(world, job)
    if elastic is None or found is None or len(elastic.running) < 2:
        return False
    return not _stuck_with(world, elastic, job, found)


def _completed(incident: Incident, job: Job | None) -> bool:
    return job is not None and suspects.run_of(job) == incident.job and job.state == "COMPLETED"


def _run_is_over(world: World, incident: Incident, *, completed: bool) -> Step:
    """Nodes that stand out are probed, or all of them where none does."""
    nodes = incident.odd or (incident.suspects if len(incident.suspects) > 1 else ())
    if completed:
        return suspects.close(world, incident, "the job has completed")
    if not nodes or not world.policy.suspects.probe:
        return suspects.close(world, incident, "the run is over")
    note = "its nodes are probed in pairs" if not incident.odd else f"probed in pairs: {','.join(nodes)}"
    probed = replace(incident, check=suspects.UNEXPLAINED, suspects=nodes, state_since=world.now, note=note)
    text = f"the run is over: {note}"
    return [probed], [Event(world.now, EventKind.INCIDENT_STATE, incident.id, incident.node, text=text)]


# What the stacks say


def stack_orders(world: World, incident: Incident) -> list[Intent]:
    return [
        i
        for i in world.book.intents_of(incident.id)
        if isinstance(i.action, SendOrder) and i.action.verb is Verb.STACKS
    ]


def read_stacks(world: World, view: ClusterView, incident: Incident, job: Job) -> stacks.Grouping | None:
    """The ranks' stacks, grouped, with those of other groups of its job that stand still; None: they were not asked for, or some may
    still come."""
    ranks = _ranks(world, incident)
    elastic, found = _elastic(view, job), quiet(world, job)
    stuck = [] if elastic is None or found is None else _stuck_with(world, elastic, job, found)
    read = {i.job: theirs for i in hung_incidents(world) if (theirs := _ranks(world, i)) is not None}
    if ranks is None or any(
        suspects.run_of(other) not in read and _may_be_read(world, incident, other) for other in stuck
    ):
        return None
    return stacks.group([*ranks, *(rank for other in stuck for rank in read.get(suspects.run_of(other), ()))])


def _may_be_read(world: World, incident: Incident, other: Job) -> bool:
    """The other group hangs, too, or will so soon that its stacks are worth the wait."""
    until, found = incident.opened_at + timedelta(seconds=2 * world.policy.hangs.stacks_s), quiet(world, other)
    due = found is not None and found.counts_from + timedelta(seconds=found.patience_s) <= until
    return due and world.now <= until


def _ranks(world: World, incident: Incident) -> list[stacks.Rank] | None:
    orders = stack_orders(world, incident)
    over = orders and world.now - min(o.planned_at for o in orders) > timedelta(seconds=world.policy.hangs.stacks_s)
    if not orders or not (over or all(order.settled for order in orders)):
        return None
    told = [(o.action.node, o.result) for o in orders if isinstance(o.action, SendOrder) and o.settled]
    return [rank for node, detail in told for rank in stacks.ranks_of(node, detail)]


# Which of them is restarted


def to_restart(world: World, view: ClusterView, incident: Incident) -> Job | None:
    """The job that is to be queued again because it hangs; None: it is not, or not yet."""
    if (
        incident.check != facts.HUNG
        or world.policy.hangs.act != RESTART
        or incident.odd is None
        or incident.acknowledged
    ):
        return None
    job = view.jobs.get(suspects.job_id_of(incident))
    if job is None or suspects.run_of(job) != incident.job or job.state != "RUNNING" or not consent(world, job):
        return None
    if world.book.recovery_of(job.key, job.restarts) is not None:
        return job  # begun: goes on until its incident is closed
    found = quiet(world, job)
    if found is None or not found.hangs(world.now):
        return None
    return job if _at_fault(world, view, incident, job, found) else None


def _at_fault(world: World, view: ClusterView, incident: Incident, job: Job, found: Quiet) -> bool:
    """Of an elastic job the group that holds the others up, if it can be told; all of them if nobody can be told for long."""
    elastic = _elastic(view, job)
    if _waits_for_a_loss(world, view, job, found):
        return False
    stuck = _stuck_with(world, elastic, job, found) if elastic is not None else []
    if not stuck:
        # Alone, or the first of the others has just told that they go on without a lost one: the rest of them will in a moment.
        changed = _changed_at(world, elastic) if elastic is not None else None
        return changed is None or world.now - changed > timedelta(seconds=found.patience_s)
    grouping = read_stacks(world, view, incident, job)
    if grouping is None:
        return False
    odd = {rank.node for rank in grouping.odd}
    waited = world.now - incident.opened_at
    return bool(odd & set(job.nodes)) if odd else waited > timedelta(seconds=world.policy.hangs.settle_s)


def _stuck_with(world: World, elastic: ElasticJob, job: Job, found: Quiet) -> list[Job]:
    """Other groups that have told of nothing since either: they may wait for this one, or this one for them."""
    stuck = []
    for group in elastic.running:
        told = words_of(world, group.job)
        last = sign_of(told)
        if group.job.key.job_id == job.key.job_id or last is None:
            continue
        if last <= found.since + timedelta(seconds=PAST_S) and quiet(world, group.job) is not None:
            stuck.append(group.job)
    return stuck


def _settling(world: World, elastic: ElasticJob) -> bool:
    """A group came, was lost or stopped a short while ago: the others may still wait for their collectives to give it up."""
    at = _changed_at(world, elastic)
    return at is not None and world.now - at < timedelta(seconds=world.policy.hangs.settle_s)


def _changed_at(world: World, elastic: ElasticJob) -> datetime | None:
    """When a group last came, was lost or was stopped."""
    ids = {group.job.key.job_id for group in elastic.groups}
    times = [r.created_at for r in world.book.recoveries.values() if r.job.job_id in ids]
    for group in elastic.groups:
        requeued = group.job.key.submit_time if group.job.restarts else None  # a requeue sets SubmitTime anew
        times += [at for at in (group.job.start_time, group.job.end_time if group.over else None, requeued) if at]
    return max((at for at in times if at <= world.now), default=None)
