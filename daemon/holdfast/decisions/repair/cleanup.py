"""Cleanup of Holdfast's leftovers in Slurm. Pure.

Holds of jobs that run again or are gone, reservations that no recovery knows (a crash between two steps), machines that failed their
validation. Holdfast must leave nothing behind in Slurm or at the provider after an incident."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.decisions.common import attempted_steps, slurm_view
from holdfast.decisions.common.part import Part
from holdfast.decisions.machines import replacement
from holdfast.decisions.recovery.stuck_completing import stuck
from holdfast.model.actions import steps
from holdfast.model.actions.action import (
    DropHold,
    HoldNodes,
    Intent,
    IntentState,
    Launch,
    Notify,
    Proposal,
    Replace,
    SendOrder,
    Terminate,
)
from holdfast.model.book import World
from holdfast.model.ids import incident_of_job_hold
from holdfast.model.incidents.incident import RecoveryPhase
from holdfast.model.notice import NoticeLevel, Topic
from holdfast.model.slurm.cluster import HOLDING_STATES, ClusterView

_LATE = timedelta(seconds=60)
"""Slurm ends a hold automatically within this time of its end."""
_DONE_WITH = frozenset(
    {RecoveryPhase.RUNNING, RecoveryPhase.RESUMED, RecoveryPhase.LEFT_ALONE, RecoveryPhase.HELD, RecoveryPhase.GONE}
)


def tidy(world: World) -> Part:
    view = slurm_view.fresh_view(world)
    if view is None:
        return Part()
    return Part((*_holds(world, view), *_failed_machines(world), *stuck(world, view), *_failing(world)))


def _holds(world: World, view: ClusterView) -> list[Proposal]:
    """Holdfast's hold reservations that no recovery needs any more. They are recognised by their name, even if the store was lost, and by a
    flag that only Holdfast's holds have."""
    overdue = _overdue(world)
    needed = {
        r.hold for r in world.book.recoveries.values() if r.hold is not None and r.phase not in _DONE_WITH
    } - overdue
    needed -= (misused := _misused(world, view))
    proposals = []
    for name, shown in sorted(view.reservations.items()):
        incident_id = incident_of_job_hold(name)
        if incident_id is None or name in needed or "FLEX" not in shown.flags:
            continue
        step = steps.drop_hold(name, attempted_steps.hour(world))
        attempts = world.book.attempts(incident_id, step)
        if world.may_follow(attempts) or _came_back(view, attempts):
            why = "its time is over" if name in overdue else "no job needs this hold any more"
            if name in misused:
                why = "its owner holds the job, or uses the hold for another one"
            proposals.append(Proposal(incident_id, step, DropHold(name), why, order=80))
    return proposals


def _overdue(world: World) -> frozenset[str]:
    """Holds that have lasted as long as they were meant to. Slurm ends them by the wall clock: after it was set back,
    one of before would last that much longer."""
    ends: dict[str, datetime] = {}
    for intent in world.book.intents.values():
        if isinstance(intent.action, HoldNodes) and intent.state is IntentState.DONE and intent.finished_at is not None:
            end = intent.finished_at + timedelta(seconds=intent.action.duration_s)
            name = intent.action.reservation
            ends[name] = max(end, ends.get(name, end))
    return frozenset(name for name, end in ends.items() if end + _LATE < world.now)


def _misused(world: World, view: ClusterView) -> frozenset[str]:
    """Holds that no longer serve only their job: its user holds it, or has another job in there. With FLEX and OVERLAP that job would
    ignore what others reserve."""
    found = set()
    for recovery in world.book.recoveries.values():
        job = view.jobs.get(recovery.job.job_id)
        if recovery.hold is None or job is None:
            continue
        others = (
            j
            for j in view.jobs.values()
            if j.reservation == recovery.hold and (j.state == "PENDING" or j.state in HOLDING_STATES)
        )
        stays = job.state == "PENDING" and job.held
        if stays or any(recovery.job.job_id not in (j.key.job_id, j.het_leader) for j in others):
            found.add(recovery.hold)
    return frozenset(found)


def _came_back(view: ClusterView, attempts: tuple[Intent, ...]) -> bool:
    """A hold of the same name was made again after it was dropped (a second run of the job under one incident)."""
    latest = attempted_steps.last(attempts)
    if latest is None or latest.state is not IntentState.DONE or latest.finished_at is None:
        return False
    return view.read_at > latest.finished_at


def _failed_machines(world: World) -> list[Proposal]:
    """Machines launched by earlier attempts of a ladder that moved on, or for an incident that ended without them."""
    proposals = []
    for incident in sorted(world.book.incidents.values(), key=lambda i: i.id):
        for instance in replacement.leftovers(world, incident, ended=not incident.open):
            step = steps.terminate(instance)
            if world.may_try(incident.id, step):
                reason = f"it was launched for {incident.node} in vain: {incident.note}"
                proposals.append(Proposal(incident.id, step, Terminate(instance, incident.node), reason, order=80))
    return proposals


def _failed(intent: Intent) -> bool:
    kept = intent.state is IntentState.REFUSED and isinstance(intent.action, Terminate)
    return kept or intent.state is IntentState.FAILED


def _failing(world: World) -> list[Proposal]:
    """Notify an operator of a step that fails for good, or repeatedly."""
    proposals = []
    for incident in world.book.open_incidents():
        steps_taken = [i for i in world.book.intents_of(incident.id) if not isinstance(i.action, Notify | SendOrder)]
        newest = {i.step: i for i in steps_taken} if any(map(_failed, steps_taken)) else {}
        for intent in filter(_failed, newest.values()):
            told = isinstance(intent.action, Launch | Replace)  # by the repair itself, at the first failure
            if intent.retryable and (told or intent.attempt < world.policy.action_attempts):
                continue
            step = steps.notify_failing(intent.step)
            if world.may_try(incident.id, step):
                body = f"{intent.reason}\n{intent.outcome}"
                subject = f"{incident.node}: {intent.step.text} failed {intent.attempt} times: {intent.outcome}"
                proposals.append(
                    Proposal(
                        incident.id,
                        step,
                        Notify(subject, body, NoticeLevel.NEEDS_SOMEBODY, Topic.STEP_FAILING),
                        intent.outcome,
                        order=90,
                    )
                )
    return proposals
