"""What of ours is left behind? Pure.

Holds of jobs that run again or are gone, reservations that no recovery knows (a crash between two steps), machines that failed their
validation. Nothing of Holdfast's may stay in Slurm or at the provider after an incident."""

from __future__ import annotations

from holdfast.controller import facts, replacement
from holdfast.controller.decide.part import Part
from holdfast.controller.decide.stuck import stuck
from holdfast.model import steps
from holdfast.model.action import DropHold, Intent, IntentState, Launch, Notify, Proposal, Replace, SendOrder, Terminate
from holdfast.model.book import World
from holdfast.model.cluster import ClusterView
from holdfast.model.ids import incident_of_job_hold
from holdfast.model.incident import RecoveryPhase

_DONE_WITH = frozenset(
    {RecoveryPhase.RUNNING, RecoveryPhase.RESUMED, RecoveryPhase.LEFT_ALONE, RecoveryPhase.HELD, RecoveryPhase.GONE}
)


def tidy(world: World) -> Part:
    view = facts.fresh_view(world)
    if view is None:
        return Part()
    return Part((*_holds(world, view), *_failed_machines(world), *stuck(world, view), *_failing(world)))


def _holds(world: World, view: ClusterView) -> list[Proposal]:
    """Our hold reservations that no recovery needs any more. The name says whose they were, also where the store was lost, and the flag
    that Holdfast's holds alone have of what is called so."""
    needed = {r.hold for r in world.book.recoveries.values() if r.hold is not None and r.phase not in _DONE_WITH}
    proposals = []
    for name, shown in sorted(view.reservations.items()):
        incident_id = incident_of_job_hold(name)
        if incident_id is None or name in needed or "FLEX" not in shown.flags:
            continue
        step = steps.drop_hold(name, facts.hour(world))
        attempts = world.book.attempts(incident_id, step)
        if world.may_follow(attempts) or _came_back(view, attempts):
            proposals.append(Proposal(incident_id, step, DropHold(name), "no job needs this hold any more", order=80))
    return proposals


def _came_back(view: ClusterView, attempts: tuple[Intent, ...]) -> bool:
    """A hold of the same name was made again after it was dropped (a second run of the job under one incident)."""
    latest = facts.last(attempts)
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


def _failing(world: World) -> list[Proposal]:
    """A human is told of a step that fails for good, or again and again."""
    proposals = []
    for incident in world.book.open_incidents():
        newest = {i.step: i for i in world.book.intents_of(incident.id)}
        for intent in newest.values():
            kept = intent.state is IntentState.REFUSED and isinstance(intent.action, Terminate)
            if not (kept or intent.state is IntentState.FAILED) or isinstance(intent.action, Notify | SendOrder):
                continue
            told = isinstance(intent.action, Launch | Replace)  # by the repair itself, at the first failure
            if intent.retryable and (told or intent.attempt < world.policy.action_attempts):
                continue
            step = steps.notify_failing(intent.step)
            if world.may_try(incident.id, step):
                body = f"{intent.reason}\n{intent.outcome}\nholdfast incident show {incident.id}"
                subject = f"{incident.node}: {intent.step.text} failed {intent.attempt} times: {intent.outcome}"
                proposals.append(Proposal(incident.id, step, Notify(subject, body), intent.outcome, order=90))
    return proposals
