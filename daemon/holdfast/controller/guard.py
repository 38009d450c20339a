"""The brakes: what of the proposals may be done now. Pure.

Two brakes of their own (design, section 6): one on new automatic drains, one on running jobs stopped on a check's word. Pause and
observe mode withhold everything. While a brake holds, jobs that failed by themselves are still recovered: that stops nobody. What the
provider announces is no check's word: the brakes neither count nor withhold it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from holdfast.controller import facts, hands_off, notices, silence
from holdfast.controller.budgets import COUNTED, Purse, why_spent
from holdfast.controller.death import brake, evidence, touching
from holdfast.controller.death.verdict import Consequence
from holdfast.controller.disputes import NONE_CONTESTED, Contested, contested, touches_a_machine
from holdfast.controller.machine_proof import shared_address
from holdfast.model.action import (
    Action,
    CheckInstance,
    Drain,
    DropHold,
    HoldJob,
    Intent,
    IntentState,
    Launch,
    Notify,
    Proposal,
    Reboot,
    Replace,
    Requeue,
    SendOrder,
    SetDown,
    StopStart,
    TellOwner,
    Terminate,
    Verb,
)
from holdfast.model.book import Brake, BrakeKind, World
from holdfast.model.budgets import budget_of
from holdfast.model.held_orders import HARMLESS_VERBS
from holdfast.model.incident import Incident
from holdfast.model.lookback import BRAKE_LONG_S, BRAKE_SHORT_S
from holdfast.model.maintenance import KeepWindow
from holdfast.model.policy import Mode

_HARMLESS = (Notify, CheckInstance, KeepWindow)
_LOOKS = frozenset({Verb.PROBE_PEER, Verb.EVIDENCE, Verb.STACKS})
"""Orders that change nothing on the node."""


class Ban(Enum):
    """What withholds a proposal."""

    OBSERVE_MODE = "observe_mode"
    PAUSE = "pause"
    BRAKE = "brake"
    CAP = "cap"
    """A budget on machines is spent."""
    HANDS_OFF = "hands_off"
    """The node is in an operator's hands, or Slurm's: maintenance, a reboot, power saving."""
    DEATHS = "deaths"
    """The brake on deaths, or a sign of life: a silent node's verdict does not allow it."""
    UNREADABLE = "unreadable"
    """An incident of the node cannot be read."""
    DISPUTE = "dispute"
    """Two nodes claim the machine."""


@dataclass(frozen=True, slots=True)
class Withheld:
    """Why a proposal is not carried out now."""

    ban: Ban
    text: str
    """For people."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """The proposals, sorted; and the brakes that tripped on the way."""

    allowed: tuple[Proposal, ...]
    withheld: tuple[tuple[Proposal, Withheld], ...]
    tripped: tuple[Brake, ...] = ()


def guard(world: World, proposals: tuple[Proposal, ...]) -> Guarded:
    """Allow or withhold each proposal; proposals of one group share their fate."""
    tripped = trip(world, proposals)
    holding = {k: b for k, b in world.book.brakes.items() if b.released_at is None} | {b.kind: b for b in tripped}
    purse, deaths = Purse(world), _Deaths(world)
    in_dispute = contested(world) if any(touches_a_machine(p.action) for p in proposals) else NONE_CONTESTED
    refused: dict[str, Withheld] = {}
    verdicts: list[tuple[Proposal, Withheld | None]] = []
    for proposal in proposals:
        why = (
            _disputed(world, in_dispute, proposal)
            or deaths.withhold(proposal)
            or _withhold(world, holding, purse, proposal)
        )
        verdicts.append((proposal, why))
        if why is not None and proposal.group:
            refused[proposal.group] = why
    final = [(p, why or refused.get(p.group)) for p, why in verdicts]
    return Guarded(
        allowed=tuple(p for p, why in final if why is None),
        withheld=tuple((p, why) for p, why in final if why is not None),
        tripped=tripped,
    )


def harmless(action: Action) -> bool:
    """Telling and asking is never withheld, nor is the reservation of a maintenance window that an operator ordered."""
    return isinstance(action, _HARMLESS) or (isinstance(action, SendOrder) and action.verb in HARMLESS_VERBS)


def _withhold(world: World, holding: Mapping[str, Brake], purse: Purse, proposal: Proposal) -> Withheld | None:
    """Why this proposal must wait; None: it need not."""
    action = proposal.action
    if harmless(action) or (
        isinstance(action, DropHold | TellOwner) and world.policy.mode is Mode.ACT and not world.book.paused
    ):
        return None
    if world.policy.mode is Mode.OBSERVE:
        return Withheld(Ban.OBSERVE_MODE, "observe mode: recorded, not done")
    if world.book.paused is not None:
        return Withheld(Ban.PAUSE, f"paused by {world.book.paused}")
    if (held := _in_other_hands(world, proposal)) is not None:
        return held
    if (held := _unreadable(world, proposal)) is not None:
        return held
    brake = _brake(world, holding, proposal)
    # A DOWN is for a node that two witnesses found dead: its jobs have lost it already.
    if brake is not None and isinstance(action, Drain):
        return Withheld(Ban.BRAKE, f"brake {brake.kind.value!r} holds: {brake.reason}")
    if brake is not None and proposal.stops_running_job:
        text = f"brake {brake.kind.value!r} holds: no running job is stopped on a check's word ({brake.reason})"
        return Withheld(Ban.BRAKE, text)
    if brake is not None and budget_of(action) is not None:
        return Withheld(Ban.BRAKE, f"brake {brake.kind.value!r} holds: no repair step begins ({brake.reason})")
    spent = purse.take(action)
    return Withheld(Ban.CAP, why_spent(spent)) if spent is not None else None


def _brake(world: World, holding: Mapping[str, Brake], proposal: Proposal) -> Brake | None:
    """The brake that applies to the proposal. None does where the provider's own API says that the machine goes, or is off."""
    incident = world.book.incidents.get(proposal.incident_id)
    if incident is not None and evidence.died_of_power(world, incident):
        return None
    planned = holding.get(BrakeKind.PLANNED_STOPS)
    if incident is not None and notices.goes_soon(world, incident.id):
        if incident.notice:
            return None
        if notices.by_agent_alone(world, incident):
            return planned
    return next((brake for brake in holding.values() if brake is not planned), None)


def _in_other_hands(world: World, proposal: Proposal) -> Withheld | None:
    """Nothing is done to a node in an operator's hands, and no running job is stopped for a fault on it."""
    action, cause = proposal.action, world.book.incidents.get(proposal.incident_id)
    if isinstance(action, SendOrder) and action.verb in _LOOKS:
        return None
    node = action.target.node or (cause.node if cause is not None and proposal.stops_running_job else None)
    hands = hands_off.on(world, node) if node else None
    held = hands is not None and hands.holds_incidents
    return Withheld(Ban.HANDS_OFF, hands.text) if hands is not None and held else None


def _disputed(world: World, in_dispute: Contested, proposal: Proposal) -> Withheld | None:
    action = proposal.action
    dispute = in_dispute.about(action)
    if isinstance(action, Reboot) and action.via_slurm and world.view is not None:
        other = shared_address(action.node, {n: (each.address, each.port) for n, each in world.view.nodes.items()})
        if other is not None:
            text = f"Slurm has one address for {action.node} and {other}: an order to reboot may reach the wrong one"
            return Withheld(Ban.DISPUTE, text)
    if dispute is None:
        return None
    return Withheld(Ban.DISPUTE, f"{dispute.text}: nothing is done to the machines of {', '.join(dispute.nodes)}")


def _unreadable(world: World, proposal: Proposal) -> Withheld | None:
    """Only a drain is done about a node of which an incident cannot be read: what was done about it already is not known."""
    incident = facts.unreadable_incident(world.book, proposal.incident_id, proposal.action)
    if incident is None:
        return None
    text = (
        f"incident {incident.id} of node {incident.node} cannot be read: nothing but a drain is done about the node; "
        f"check it, then holdfast incident close {incident.id}"
    )
    return Withheld(Ban.UNREADABLE, text)


def drain_limits(world: World) -> tuple[tuple[float, int], ...]:
    """(window in seconds, most nodes) for the drain brake; the share counts all Slurm nodes."""
    brake = world.policy.brake
    nodes = len(world.view.nodes) if world.view is not None else 0
    return (
        (BRAKE_SHORT_S, max(brake.drains_10min, math.floor(nodes * brake.drains_10min_share))),
        (BRAKE_LONG_S, max(brake.drains_60min, math.floor(nodes * brake.drains_60min_share))),
    )


def trip(world: World, proposals: tuple[Proposal, ...]) -> tuple[Brake, ...]:
    """Brakes that these proposals, or the suspect nodes behind them, trip now. One that holds already is not tripped again."""
    holding = {k for k, b in world.book.brakes.items() if b.released_at is None}
    checks = (
        (BrakeKind.DRAINS, _too_many_drains),
        (BrakeKind.JOB_STOPS, _too_many_stops),
        (BrakeKind.PLANNED_STOPS, _too_many_planned),
    )
    reasons = {kind: check(world, proposals) for kind, check in checks if kind not in holding}
    return tuple(Brake(kind, world.now, reason) for kind, reason in reasons.items() if reason is not None)


def _too_many_drains(world: World, proposals: tuple[Proposal, ...]) -> str | None:
    """Distinct nodes drained in the window, together with every other suspect; what an operator released no longer counts. None: few
    enough."""
    if not any(isinstance(p.action, Drain | SetDown) and not _planned(world, p.incident_id) for p in proposals):
        return None
    released = _released(world, BrakeKind.DRAINS)
    for window_s, most in drain_limits(world):
        since = max(world.now - timedelta(seconds=window_s), released)
        drained = {
            i.action.node
            for i in world.book.intents.values()
            if isinstance(i.action, Drain | SetDown)
            and i.state in COUNTED
            and i.planned_at > since
            and not _planned(world, i.incident_id)
            and not _drained_again(world, i)
        }
        nodes = drained | {
            i.node
            for i in world.book.open_incidents()
            if facts.acting(i)
            and i.opened_at > since
            and not _not_a_checks_word(world, i)
            and hands_off.holds(world, i) is None
        }
        if len(nodes) > most:
            return (
                f"{len(nodes)} nodes are suspect within {window_s / 60:.0f} min, more than {most}: look for one cause"
            )
    return None


def _drained_again(world: World, intent: Intent) -> bool:
    """Slurm had lost the drain: the node was out of service for this incident before, so it is no new suspect."""
    action = intent.action
    if not isinstance(action, Drain):
        return False
    before = (i for i in world.book.intents_of(intent.incident_id) if i.planned_at < intent.planned_at)
    return any(isinstance(i.action, Drain | SetDown) and i.state is IntentState.DONE for i in before)


def _too_many_planned(world: World, proposals: tuple[Proposal, ...]) -> str | None:
    """Nodes that go by the word of their agents alone. An agent or a check that is wrong on every node looks the same. None: few enough."""
    alone = {i.id: i for i in world.book.open_incidents() if facts.acting(i) and notices.by_agent_alone(world, i)}
    if not any((isinstance(p.action, Drain) or p.stops_running_job) and p.incident_id in alone for p in proposals):
        return None
    released = _released(world, BrakeKind.PLANNED_STOPS)
    for window_s, most in drain_limits(world):
        since = max(world.now - timedelta(seconds=window_s), released)
        nodes = {i.node for i in alone.values() if i.opened_at > since}
        if len(nodes) > most:
            return (
                f"{len(nodes)} nodes say within {window_s / 60:.0f} min that their machines go, more than {most}, "
                "and the provider's API does not: look at what their agents read"
            )
    return None


def _too_many_stops(world: World, proposals: tuple[Proposal, ...]) -> str | None:
    """Running jobs stopped on a check's word in the last hour, with those that this cycle would stop. None: few enough."""
    since = max(world.now - timedelta(seconds=BRAKE_LONG_S), _released(world, BrakeKind.JOB_STOPS))
    new = [
        p
        for p in proposals
        if p.stops_running_job and _opened_after(world, p.incident_id, since) and not _goes(world, p.incident_id)
    ]
    if not new:
        return None
    past = [
        i for i in world.book.intents.values() if i.state in COUNTED and i.planned_at > since and _stopped(world, i)
    ]
    brake = world.policy.brake
    jobs = len(past) + len(new)
    if jobs > brake.stopped_jobs_60min:
        return f"{jobs} running jobs would be stopped on a check's word within an hour, more than {brake.stopped_jobs_60min}"
    sizes = {_job_id(action): _gpus(world, action) for action in (*(i.action for i in past), *(p.action for p in new))}
    total = sum(n.gpu_count for n in world.view.nodes.values()) if world.view is not None else 0
    if total and len(sizes) > 1 and sum(sizes.values()) > total * brake.stopped_gpu_share_60min:
        return f"jobs on {sum(sizes.values())} of {total} GPUs would be stopped on a check's word within an hour"
    return None


def _opened_after(world: World, incident_id: str, since: datetime) -> bool:
    incident = world.book.incidents.get(incident_id)
    return incident is not None and incident.opened_at > since


def _job_id(action: Action) -> int:
    return action.job.job_id if isinstance(action, Requeue | HoldJob) else 0


def _stopped(world: World, intent: Intent) -> bool:
    """Whether this intent stopped a running job on a check's word."""
    action = intent.action
    if not isinstance(action, Requeue) or _planned(world, intent.incident_id):
        return False
    recovery = world.book.recovery_of(action.job, action.restarts)
    return recovery is not None and recovery.stops_running_job


def _planned(world: World, incident_id: str) -> bool:
    """On a notice alone, or power that is off, which the brakes on checks do not count."""
    incident = world.book.incidents.get(incident_id)
    return incident is not None and _not_a_checks_word(world, incident)


def _not_a_checks_word(world: World, incident: Incident) -> bool:
    return notices.by_notice_alone(world, incident) or evidence.died_of_power(world, incident)


def _goes(world: World, incident_id: str) -> bool:
    """The machine goes soon, by the provider's API or by a notice alone."""
    incident = world.book.incidents.get(incident_id)
    if incident is None or not notices.goes_soon(world, incident_id):
        return False
    return bool(incident.notice) or notices.by_notice_alone(world, incident)


def _gpus(world: World, action: Action) -> int:
    if not isinstance(action, Requeue | HoldJob):
        return 0
    job = world.view.jobs.get(action.job.job_id) if world.view is not None else None
    return sum(len(m) for m in job.gpu_indices.values()) if job is not None else 0


def _released(world: World, kind: BrakeKind) -> datetime:
    brake = world.book.brakes.get(kind)
    if brake is not None and brake.released_at is not None:
        return brake.released_at
    return world.now - timedelta(seconds=BRAKE_LONG_S)


_CONSEQUENCES: Mapping[type[Action], Consequence] = {
    Drain: Consequence.DRAIN,
    SetDown: Consequence.SET_DOWN,
    Reboot: Consequence.REBOOT,
    StopStart: Consequence.END_MACHINE,
    Replace: Consequence.END_MACHINE,
    Launch: Consequence.END_MACHINE,
    Terminate: Consequence.END_MACHINE,
}


class _Deaths:
    """What the verdict about a silent node allows, looked at once more for each step."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._held: Mapping[str, brake.Group] | None = None

    def withhold(self, proposal: Proposal) -> Withheld | None:
        what = _CONSEQUENCES.get(type(proposal.action))
        incident = self._world.book.incidents.get(proposal.incident_id)
        view = self._world.view
        if what is None or incident is None or view is None or incident.node not in view.nodes:
            return None
        if proposal.action.target.node != incident.node or not touching.about_silence(self._world, incident):
            return None
        if isinstance(proposal.action, Terminate) and proposal.action.instance_id != incident.serving_id:
            return None  # launched in vain: it serves no one
        if isinstance(proposal.action, SetDown) and view.nodes[incident.node].down:
            return None  # Slurm's own DOWN, made ours so that we may take it back
        if self._held is None:
            silent = silence.silent_nodes(self._world)
            self._held = brake.braked(brake.groups(self._world, silent))
        held = brake.holds(self._world, incident, self._held)
        why = touching.why_not(self._world, view, incident, what, held)
        return Withheld(Ban.DEATHS, why.text) if why is not None else None
