"""Convert a guarded decision into a change of the state: intents with their keys, recoveries, brakes and events. Pure."""

from __future__ import annotations

from dataclasses import replace

from holdfast.decisions.brakes import budget_waits, own_word, proposal_records
from holdfast.decisions.brakes.guard import Ban, Guarded
from holdfast.decisions.common import attempted_steps
from holdfast.decisions.decide import Decision
from holdfast.model.actions import steps
from holdfast.model.actions.action import HoldJob, Intent, IntentState, Notify, Proposal, action_event
from holdfast.model.actions.steps import StepKey
from holdfast.model.book import Brake, Change, World
from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import Incident, Recovery, RecoveryPhase
from holdfast.model.notice import NoticeLevel, Topic


def record(world: World, decision: Decision, guarded: Guarded, fence: int) -> Change:
    """Change that the store must hold before any action is carried out."""
    asked = proposal_records.follow(world, decision.proposals, guarded)
    allowed = (*sorted(guarded.allowed, key=lambda p: p.order), *_told(world, guarded), *asked.notices)
    intents = [_intent(world, p, fence, n) for n, p in enumerate(allowed)]
    withheld = [_withheld(world, p, why.text, fence) for p, why in guarded.withheld]
    withheld = [i for i in withheld if i.key not in world.book.intents]
    recoveries, hurt = _recoveries(world, decision, guarded)
    return Change(
        incidents=_notes(world, guarded, asked.incidents),
        recoveries=recoveries,
        intents=(*intents, *withheld),
        brakes=guarded.tripped,
        events=(
            *hurt,
            *decision.events,
            *(_planned(i) for i in intents),
            *(_withheld_event(i) for i in withheld),
            *(_tripped(b) for b in guarded.tripped),
            *asked.events,
        ),
    )


def _told(world: World, guarded: Guarded) -> list[Proposal]:
    """Notifications to the operator about brakes, limits and budgets."""
    unpaid = [(p, why.text) for p, why in guarded.withheld if why.ban is Ban.CAP]
    limits = own_word.tell(world, guarded.too_many)
    return [*_tell_of_brakes(guarded), *_again(world), *limits, *budget_waits.tell(world, unpaid)]


def _tell_of_brakes(guarded: Guarded) -> list[Proposal]:
    """Notify an operator once of each brake that trips, with the first incident that it holds."""
    incident = next((p.incident_id for p, _ in guarded.withheld), None)
    if incident is None:
        return []
    return [
        Proposal(
            incident,
            steps.notify_brake(brake.name, brake.tripped_at),
            Notify(
                f"brake {brake.name!r} holds: {brake.reason}",
                f"{brake.reason}\nLook for the one cause (holdfast nodes), then: holdfast release {brake.name}",
                NoticeLevel.NEEDS_SOMEBODY,
                Topic.BRAKE,
            ),
            brake.reason,
        )
        for brake in guarded.tripped
    ]


def _again(world: World) -> list[Proposal]:
    """Undelivered notifications of brakes that still hold and may be tried again."""
    holding = [b for b in world.book.brakes.values() if b.released_at is None]
    paged = {steps.notify_brake(brake.name, brake.tripped_at) for brake in holding}
    if not paged:
        return []
    failed = (i for i in world.book.intents.values() if i.state is IntentState.FAILED and isinstance(i.action, Notify))
    undelivered = {(i.incident_id, i.step): i for i in failed if i.step in paged}
    return [
        Proposal(incident_id, step, i.action, i.reason)
        for (incident_id, step), i in undelivered.items()
        if world.may_try(incident_id, step)
    ]


def _key(world: World, proposal: Proposal) -> str:
    """The attempt's number follows the last one's: the first ones may be forgotten while the last are not."""
    latest = attempted_steps.last(world.book.planned(proposal.incident_id, proposal.step))
    return StepKey(proposal.incident_id, proposal.step, latest.attempt + 1 if latest is not None else 1).text


def _intent(world: World, proposal: Proposal, fence: int, order: int) -> Intent:
    return Intent(
        key=_key(world, proposal),
        incident_id=proposal.incident_id,
        action=proposal.action,
        reason=proposal.reason,
        fence=fence,
        state=IntentState.PLANNED,
        planned_at=world.now,
        order=order,
    )


def _withheld(world: World, proposal: Proposal, why: str, fence: int) -> Intent:
    """Attempt 0: what would have been done. Recorded once; it never counts as an attempt."""
    intent = _intent(world, proposal, fence, 0)
    key = StepKey(proposal.incident_id, proposal.step, 0).text
    return replace(intent, key=key, state=IntentState.WITHHELD, outcome=why, finished_at=world.now)


def _recoveries(world: World, decision: Decision, guarded: Guarded) -> tuple[tuple[Recovery, ...], list[Event]]:
    """A recovery whose stop is withheld waits, with the reason; a job is recorded as affected once."""
    waiting = {p.group: why for p, why in guarded.withheld if p.group}
    held_back = {f"{p.action.job.text}": why for p, why in guarded.withheld if isinstance(p.action, HoldJob)}
    changed: list[Recovery] = []
    events: list[Event] = []
    for recovery in decision.recoveries:
        why = waiting.get(recovery.group) or (
            held_back.get(recovery.job.text) if recovery.phase is RecoveryPhase.HELD else None
        )
        after = recovery
        if why is not None:
            after = replace(recovery, phase=RecoveryPhase.WAITING, spare=None, hold=None, note=why.text)
        before = world.book.recoveries.get(recovery.id)
        if after == before:
            continue
        changed.append(after)
        if before is None:
            events.append(_hurt_event(world, after))
        elif before.phase is not after.phase:
            text = f"job {after.job}: {before.phase.value} → {after.phase.value}" + (
                f" ({after.note})" if after.note else ""
            )
            detail = {"from": before.phase.value, "to": after.phase.value}
            events.append(
                Event(
                    world.now, EventKind.RECOVERY_PHASE, after.incident_id, job=after.job.text, text=text, detail=detail
                )
            )
    return tuple(changed), events


def _hurt_event(world: World, recovery: Recovery) -> Event:
    text = f"job {recovery.job} of {recovery.user} on {len(recovery.nodes_before)} nodes is affected: {recovery.phase.value}"
    return Event(
        world.now,
        EventKind.JOB_HURT,
        recovery.incident_id,
        job=recovery.job.text,
        text=text + (f" ({recovery.note})" if recovery.note else ""),
        detail={
            "restarts": recovery.restarts_before,
            "nodes": list(recovery.nodes_before),
            "gpus": recovery.gpus,
            "consent": recovery.consent,
            "ground": recovery.ground.value if recovery.ground is not None else None,
            "phase": recovery.phase.value,
        },
    )


def _notes(world: World, guarded: Guarded, asked: tuple[Incident, ...]) -> tuple[Incident, ...]:
    """An incident whose containment is withheld says why, on ``holdfast nodes`` and ``incident show``. ``asked``: those whose proposals
    have changed."""
    notes = {p.incident_id: why.text for p, why in reversed(guarded.withheld)}
    after = {i.id: i for i in asked}
    held_back = {number: after.get(number) or world.book.incidents.get(number) for number in sorted({*notes, *after})}
    noted = (
        (replace(i, note=notes[i.id]) if i.id in notes else i) for i in held_back.values() if i is not None and i.open
    )
    return tuple(i for i in noted if i != world.book.incidents[i.id])


def _planned(intent: Intent) -> Event:
    return action_event(intent, EventKind.ACTION_PLANNED, intent.planned_at, intent.reason)


def _withheld_event(intent: Intent) -> Event:
    return action_event(intent, EventKind.ACTION_WITHHELD, intent.planned_at, intent.outcome)


def _tripped(brake: Brake) -> Event:
    return Event(
        brake.tripped_at,
        EventKind.BRAKE_TRIPPED,
        text=f"brake {brake.name!r}: {brake.reason}",
        detail={"kind": brake.name},
    )
