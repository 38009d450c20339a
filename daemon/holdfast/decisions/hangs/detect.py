"""Hung jobs: detection and follow-up. Pure.

A job hangs if it reported steps and has reported none for much longer than its longest step took. Its incident is only watched: the stacks
of its ranks are read (:mod:`.respond`), the odd ranks named, and if the policy says so the job is requeued (:mod:`recover`). A job of which
too little is known never counts as hung. If a job that never reported progress has a silent fabric, an operator is notified; no action is
taken."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.decisions.common import mounts, slurm_view
from holdfast.decisions.common.consent import consent
from holdfast.decisions.common.elastic_jobs import ElasticJob, elastic_of
from holdfast.decisions.common.node_policy import least_of
from holdfast.decisions.hangs import shared_stalls, silent_fabric, stacks
from holdfast.decisions.hangs.progress_stall import (
    BOUNDED,
    PAST_S,
    Quiet,
    only_silent,
    quiet,
    sign_of,
    step_past,
    words_of,
)
from holdfast.decisions.probing import suspects
from holdfast.model.actions.action import Intent, IntentState, SendOrder, Verb
from holdfast.model.book import Change, World
from holdfast.model.ids import NewId
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState, RecoveryPhase
from holdfast.model.incidents.transitions import close, move, remark
from holdfast.model.policies.policy import Mode
from holdfast.model.slurm.cluster import ClusterView, Job

# The incident


def follow_hangs(world: World, new_id: NewId) -> Change:
    """Open an incident for each run that hangs from now on, and move on those that are open."""
    view = slurm_view.fresh_view(world)
    if view is None:
        return Change()
    found = pauses(world, view)
    steps = [shared_stalls.follow_stalls(world, view, found, new_id)]
    together = {run for i in (*shared_stalls.stalls(world), *steps[0][0]) if i.open for run in i.stalled}
    steps += [_follow(world, view, i) for i in hung_incidents(world) if i.job not in together]
    steps += [_opened(world, job, q, new_id) for job, q in _new(world, view, found) if job.run.text not in together]
    return Change(
        incidents=tuple(i for changed, _ in steps for i in changed), events=tuple(e for _, seen in steps for e in seen)
    )


def pauses(world: World, view: ClusterView) -> list[tuple[Job, Quiet]]:
    """Jobs whose time without progress is known, with that time, hung or not."""
    telling = [job for job_id in world.book.checkpoints if (job := view.jobs.get(job_id)) is not None]
    quiets = [(job, quiet(world, job)) for job in telling]
    quiets += [(job, only_silent(world, job)) for job in view.jobs.values()]
    return [(job, q) for job, q in quiets if q is not None]


def hung_incidents(world: World) -> list[Incident]:
    return [i for i in world.book.open_incidents() if i.hangs and i.state is IncidentState.WATCHING]


def _new(world: World, view: ClusterView, quiets: list[tuple[Job, Quiet]]) -> list[tuple[Job, Quiet]]:
    found = [(job, q) for job, q in quiets if q.hangs(world.now)]
    found.sort(key=lambda each: (not each[1].told, each[0].key.job_id))
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
    """Whether its incident is open, or was closed and no step was reported since. A job that reported a step since may hang again; for one
    that never reports, an operator is notified once."""
    mine = [i for i in world.book.incidents.values() if i.run == job.run and suspects.looks_for_a_suspect(i)]
    return any(i.open or not found.told or i.fault_at >= found.since for i in mine)


def _within_the_hour(world: World, view: ClusterView, new: list[tuple[Job, Quiet]]) -> list[tuple[Job, Quiet]]:
    """Limit new hangs to as many jobs as may be investigated within an hour; jobs that only have a silent fabric may use half of that. The
    groups of an elastic job wait for each other and count as one job."""
    quota = suspects.InquiryQuota(world, view)
    return [(job, found) for job, found in new if quota.take(job, half=not found.told)]


def _waits_for_a_loss(world: World, view: ClusterView, job: Job, found: Quiet) -> bool:
    """A group of too few, or one after another was lost, while none has made a step since: their collectives have not given it up yet."""
    elastic = elastic_of(view, job.key.job_id)
    if elastic is None:
        return False
    others = [group.job for group in elastic.running if group.job.key.job_id != job.key.job_id]
    return elastic.size == 0 or (not step_past(world, others, found.since) and _settling(world, elastic))


def _opened(world: World, job: Job, found: Quiet, new_id: NewId) -> suspects.Changed:
    note = "the stacks of its ranks are read"
    new = suspects.about_job(world, job, IncidentKind.HANG, found.since, _said(job, found), note, new_id)
    return suspects.one(suspects.open_about_job(world, new, job.key.text))


def _said(job: Job, found: Quiet) -> str:
    where = f"in phase {found.phase}" if found.phase in BOUNDED else f"after step {found.step}"
    told = (
        f"has reported no progress since {found.since:%H:%M:%S} UTC, {where}"
        if found.told
        else "has never reported progress"
    )
    if found.fabric_since is None:
        return told
    return f"{told}, the fabric of its {len(job.nodes)} nodes has been silent since {found.fabric_since:%H:%M:%S} UTC"


def _follow(world: World, view: ClusterView, incident: Incident) -> suspects.Changed:
    job = suspects.job_of(view, incident)
    if job is None or not slurm_view.holds(job):
        return _run_is_over(world, incident, completed=job is not None and job.state == "COMPLETED")
    last = sign_of(words_of(world, job))
    if last is not None and last > incident.fault_at:
        return suspects.one(close(incident, world.now, "the job reports progress again"))
    if last is None and _carries_again(world, incident):
        return suspects.one(close(incident, world.now, "its fabric carries traffic again"))
    found = read_stacks(world, view, incident, job) if incident.odd is None else None
    if found is None:
        return [], []
    odd = found.odd or (found.ranks if _alone(world, view, job) else ())
    mine = {node for part in job.components for node in part.nodes}
    own = found.odd_nodes if found.odd else tuple(sorted({rank.node for rank in odd}))
    told = f"stacks: {found.text}"
    named = f"; odd: {', '.join(r.name for r in odd)}" if odd else "; no rank stands out"
    detail = {"stacks": [g.text for g in found.groups], "odd": [r.name for r in odd], "nodes": list(own)}
    event = remark(incident, world.now, (told + named)[:1000], detail)
    own = tuple(node for node in own if node in mine)
    node = min(own, default=incident.node)
    return [replace(incident, node=node, odd=own, note=(told + named)[:500])], [event]


def _carries_again(world: World, incident: Incident) -> bool:
    """Whether the incident was opened for a silent fabric alone, and the fabric carries bytes again."""
    moved = (silent_fabric.moved_of(world, node) for node in incident.suspects)
    return any(at is not None and at > incident.opened_at for at in moved)


def _alone(world: World, view: ClusterView, job: Job) -> bool:
    """Whether this is a group of an elastic job that hangs while the others do not: they continue without it, or wait for it in the
    rendezvous."""
    elastic, found = elastic_of(view, job.key.job_id), quiet(world, job)
    if elastic is None or found is None or len(elastic.running) < 2:
        return False
    return not _stuck_with(world, elastic, job, found)


def _run_is_over(world: World, incident: Incident, *, completed: bool) -> suspects.Changed:
    """Probe the suspect nodes, or all nodes of the job if there are none."""
    nodes = incident.odd or (incident.suspects if len(incident.suspects) > 1 else ())
    if completed:
        return suspects.one(close(incident, world.now, "the job has completed"))
    if not nodes or not world.policy.suspects.probe or mounts.during_a_stall(world, incident.fault_at):
        return suspects.one(close(incident, world.now, "the run is over"))
    note = "its nodes are probed in pairs" if not incident.odd else f"probed in pairs: {','.join(nodes)}"
    probed = replace(incident, check=suspects.UNEXPLAINED, pair_probed=True, suspects=nodes)
    text = f"the run is over: {note}"
    return suspects.one(move(probed, IncidentState.WATCHING, world.now, note, text=text))


# What the stacks say


def stack_orders(world: World, incident: Incident) -> list[Intent]:
    """Orders to read stacks that count; in observe mode also those that were withheld: what else would be done is recorded without them."""
    observes = least_of((incident.node,) if incident.node else (), world).mode is Mode.OBSERVE
    return [
        i
        for i in world.book.intents_of(incident.id)
        if isinstance(i.action, SendOrder)
        and i.action.verb is Verb.STACKS
        and (i.is_attempt or (observes and i.state is IntentState.WITHHELD))
    ]


def read_stacks(world: World, view: ClusterView, incident: Incident, job: Job) -> stacks.Grouping | None:
    """The ranks' stacks, grouped, with those of other hung groups of its job; None: they were not requested, or some may still arrive."""
    ranks = _ranks(world, incident)
    elastic, found = elastic_of(view, job.key.job_id), quiet(world, job)
    stuck = [] if elastic is None or found is None else _stuck_with(world, elastic, job, found)
    read = {i.run: theirs for i in hung_incidents(world) if (theirs := _ranks(world, i)) is not None}
    if ranks is None or any(other.run not in read and _may_be_read(world, incident, other) for other in stuck):
        return None
    return stacks.group([*ranks, *(rank for other in stuck for rank in read.get(other.run, ()))])


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
    policy = world.policy.hangs
    may = policy.restarts or policy.restarts_groups
    if not incident.hangs or not may or incident.odd is None or incident.acknowledged:
        return None
    job = suspects.job_of(view, incident)
    if job is None or job.state != "RUNNING" or consent(world, job) is None:
        return None
    begun = world.book.recovery_of(job.key, job.restarts)
    if begun is not None and begun.incident_id == incident.id and begun.phase is not RecoveryPhase.GONE:
        return job  # continues until the incident is closed
    found = quiet(world, job)
    if found is None or not found.hangs(world.now) or not restarted_by_policy(world, view, job):
        return None
    if shared_stalls.verdict(world, view, (job, found), pauses(world, view)) is not shared_stalls.StallVerdict.ALONE:
        return None
    return job if _at_fault(world, view, incident, job, found) else None


def restarted_by_policy(world: World, view: ClusterView, job: Job) -> bool:
    """Whether the site lets it be queued again: any job, or one group of an elastic job that hangs while the others do not."""
    policy = world.policy.hangs
    return policy.restarts or (policy.restarts_groups and _alone(world, view, job))


def undecided(world: World, view: ClusterView, incident: Incident, job: Job) -> bool:
    """Whether other jobs may have stopped with it: this stays undecided for the time of one floor."""
    found = quiet(world, job)
    if found is None or world.now - incident.opened_at > timedelta(seconds=world.policy.hangs.floor_s):
        return False
    return shared_stalls.verdict(world, view, (job, found), pauses(world, view)) is shared_stalls.StallVerdict.UNCLEAR


def _at_fault(world: World, view: ClusterView, incident: Incident, job: Job, found: Quiet) -> bool:
    """Whether this group holds up the others of its elastic job. True for all groups if none can be identified for long."""
    elastic = elastic_of(view, job.key.job_id)
    if _waits_for_a_loss(world, view, job, found):
        return False
    stuck = _stuck_with(world, elastic, job, found) if elastic is not None else []
    if not stuck:
        # Alone, or the first of the others has just reported that they continue without a lost one: the rest will do so shortly.
        changed = _changed_at(world, elastic) if elastic is not None else None
        return changed is None or world.now - changed > timedelta(seconds=found.patience_s)
    grouping = read_stacks(world, view, incident, job)
    if grouping is None:
        return False
    odd = {rank.node for rank in grouping.odd}
    waited = world.now - incident.opened_at
    return bool(odd & set(job.nodes)) if odd else waited > timedelta(seconds=world.policy.hangs.settle_s)


def _stuck_with(world: World, elastic: ElasticJob, job: Job, found: Quiet) -> list[Job]:
    """Other groups that have reported nothing since either: they may wait for this one, or this one for them."""
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
    """Whether a group joined, was lost or was stopped a short while ago: the others may still wait for their collectives to give it up."""
    at = _changed_at(world, elastic)
    return at is not None and world.now - at < timedelta(seconds=world.policy.hangs.settle_s)


def _changed_at(world: World, elastic: ElasticJob) -> datetime | None:
    """Time when a group last joined, was lost or was stopped."""
    ids = {group.job.key.job_id for group in elastic.groups}
    times = [r.created_at for r in world.book.recoveries.values() if r.job.job_id in ids]
    for group in elastic.groups:
        requeued = group.job.key.submit_time if group.job.restarts else None  # a requeue sets a new SubmitTime
        times += [at for at in (group.job.start_time, group.job.end_time if group.over else None, requeued) if at]
    return max((at for at in times if at <= world.now), default=None)
