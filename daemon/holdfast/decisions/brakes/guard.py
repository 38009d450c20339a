"""Guard: proposals that the brakes and limits allow now. Pure.

Two separate brakes (design, section 6): one on new automatic drains, one on running jobs stopped because of a check's verdict. Pause and
observe mode withhold everything. While a brake holds, jobs that failed on their own are still recovered: that stops no running job.
Announcements of the provider are no verdict of a check: the brakes neither count nor withhold them. Nor are a job's reports about itself:
they have separate limits (:mod:`own_word`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from holdfast.decisions.brakes.own_word import OwnStops, StopLimit
from holdfast.decisions.brakes.proposing import Ask, asked, nodes_of, policy_about, why_waits
from holdfast.decisions.brakes.tripping import too_early, trip
from holdfast.decisions.common import brake_scopes, node_incidents
from holdfast.decisions.common.budgets import Purse, why_kept_for_faults, why_spent
from holdfast.decisions.death import evidence
from holdfast.decisions.death.verdict import Consequence
from holdfast.decisions.machines import replacement
from holdfast.decisions.machines.disputes import NONE_CONTESTED, Contested, contested, touches_a_machine
from holdfast.decisions.machines.machine_proof import shared_address
from holdfast.decisions.nodes import hands_off
from holdfast.decisions.planned import notices
from holdfast.decisions.silence import common_cause, may_touch, silent_nodes
from holdfast.model.actions.action import (
    Action,
    CheckInstance,
    Drain,
    DropHold,
    Launch,
    Notify,
    Proposal,
    Reboot,
    Replace,
    ReportFault,
    SendOrder,
    SetDown,
    StopStart,
    TakeOverDrain,
    TellOwner,
    Terminate,
    Verb,
)
from holdfast.model.actions.budgets import budget_of
from holdfast.model.actions.held_orders import HARMLESS_VERBS
from holdfast.model.book import Brake, BrakeKind, World
from holdfast.model.incidents.incident import Incident
from holdfast.model.operators.maintenance import KeepWindow
from holdfast.model.operators.node_orders import DrainForOperator, ReleaseForOperator
from holdfast.model.policies.policy import Mode

_HARMLESS = (Notify, CheckInstance, KeepWindow, DrainForOperator, ReleaseForOperator)
_LOOKS = frozenset({Verb.PROBE_PEER, Verb.EVIDENCE, Verb.STACKS, Verb.OUTPUT, Verb.SURVEY, Verb.JOB_NOTE})
"""Orders that change nothing on the node."""


class Ban(Enum):
    """Kind of restraint that withholds a proposal."""

    OBSERVE_MODE = "observe_mode"
    NEVER_TOUCH = "never_touch"
    """A node set says that nothing is ever done to the node."""
    PROPOSED = "proposed"
    """An operator has not accepted it (yet)."""
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
    UNASKED = "unasked"
    """The provider, which may announce the same, has not been asked yet."""
    OWN_WORD = "own_word"
    """Enough jobs were stopped within the hour for what they report of themselves."""


@dataclass(frozen=True, slots=True)
class WithheldProposal:
    """Reason why a proposal is not carried out now."""

    ban: Ban
    text: str
    """For people."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """The proposals, sorted; and the brakes that tripped on the way."""

    allowed: tuple[Proposal, ...]
    withheld: tuple[tuple[Proposal, WithheldProposal], ...]
    tripped: tuple[Brake, ...] = ()
    too_many: tuple[StopLimit, ...] = ()
    """Limits on what jobs report of themselves that withhold something."""
    asks: tuple[Ask, ...] = ()
    """Steps that nothing holds back but the want of an operator's accept."""


def guard(world: World, proposals: tuple[Proposal, ...]) -> Guarded:
    """Allow or withhold each proposal; proposals of one group share their fate."""
    tripped = trip(world, proposals)
    holding = (*(b for _, b in sorted(world.book.brakes.items()) if b.holds), *tripped)
    purse, deaths, own_stops = Purse(world), _Deaths(world), OwnStops(world)
    too_many: list[StopLimit] = []
    asks: list[Ask] = []
    early = too_early(world)
    in_dispute = contested(world) if any(touches_a_machine(p.action) for p in proposals) else NONE_CONTESTED
    refused: dict[str, WithheldProposal] = {}
    verdicts: list[tuple[Proposal, WithheldProposal | None]] = []
    for proposal in proposals:
        why = (
            _disputed(world, in_dispute, proposal)
            or _unasked(early, proposal)
            or deaths.withhold(proposal)
            or _withhold(world, holding, proposal)
            or _unaccepted(world, proposal, asks)
            or unpaid(world, purse, proposal)
        )
        if why is None and (limit := own_stops.take(proposal)) is not None:
            too_many.append(limit)
            why = WithheldProposal(Ban.OWN_WORD, limit.text)
        verdicts.append((proposal, why))
        if why is not None and proposal.group:
            refused[proposal.group] = why
    waits = {ask.proposal.incident_id: why for ask, why in _reasons(asks, verdicts)}
    final = [(p, why or refused.get(p.group) or _with_its_rung(p, waits)) for p, why in verdicts]
    return Guarded(
        allowed=tuple(p for p, why in final if why is None),
        withheld=tuple((p, why) for p, why in final if why is not None),
        tripped=tripped,
        too_many=tuple(too_many),
        asks=tuple(asks),
    )


def _reasons(
    asks: Iterable[Ask], verdicts: Iterable[tuple[Proposal, WithheldProposal | None]]
) -> list[tuple[Ask, WithheldProposal]]:
    whys = {id(p): why for p, why in verdicts}
    return [(ask, why) for ask in asks if (why := whys[id(ask.proposal)]) is not None]


def _with_its_rung(proposal: Proposal, waits: Mapping[str, WithheldProposal]) -> WithheldProposal | None:
    """The provider is notified of a fault together with the step that gives it the machine back, not before that is accepted."""
    return waits.get(proposal.incident_id) if isinstance(proposal.action, ReportFault) else None


def harmless(action: Action) -> bool:
    """Whether the action is never withheld: notifications, queries, and what an operator ordered of a node: the reservation of a
    maintenance window, a drain, a release."""
    return isinstance(action, _HARMLESS) or (isinstance(action, SendOrder) and action.verb in HARMLESS_VERBS)


def _withhold(world: World, holding: Sequence[Brake], proposal: Proposal) -> WithheldProposal | None:
    """Reason why this proposal must wait, whatever an operator accepts and whatever budget is left; None: it need not."""
    action = proposal.action
    if harmless(action):
        return None
    if (never := _by_policy(world, proposal)) is not None:
        return never
    if isinstance(action, DropHold | TellOwner) and not world.book.paused:
        return None
    if world.book.paused is not None:
        return WithheldProposal(Ban.PAUSE, f"paused by {world.book.paused}")
    if (held := _in_other_hands(world, proposal)) is not None:
        return held
    if (held := _unreadable(world, proposal)) is not None:
        return held
    brake = brake_about(world, holding, proposal)
    if brake is None:
        return None
    if isinstance(action, Drain):
        text = brake.reason
    elif proposal.stops_running_job:
        text = f"no running job is stopped because of a finding ({brake.reason})"
    else:
        text = f"no repair step begins ({brake.reason})"
    return WithheldProposal(Ban.BRAKE, f"brake {brake.name!r} holds: {text}")


def _by_policy(world: World, proposal: Proposal) -> WithheldProposal | None:
    """Why the node sets or the mode forbid the step, with or without an accept; None: they do not."""
    policy = policy_about(world, proposal)
    if policy.never_touch:
        return WithheldProposal(Ban.NEVER_TOUCH, f"{policy.why}: recorded, never done")
    if policy.mode is Mode.OBSERVE:
        everywhere = world.policy.mode is Mode.OBSERVE
        return WithheldProposal(Ban.OBSERVE_MODE, f"{'observe mode' if everywhere else policy.why}: recorded, not done")
    return None


def _unaccepted(world: World, proposal: Proposal, asks: list[Ask]) -> WithheldProposal | None:
    """Asked last but for the budgets: only a step that would be done is proposed, and one that waits spends no budget."""
    if harmless(proposal.action):
        return None
    ask = asked(world, policy_about(world, proposal), proposal)
    if ask is None:
        return None
    asks.append(ask)
    return WithheldProposal(Ban.PROPOSED, why_waits(ask, world.book.incidents.get(proposal.incident_id)))


def unpaid(world: World, purse: Purse, proposal: Proposal) -> WithheldProposal | None:
    """Why no budget is left for the step; None: there is, or it needs none."""
    action = proposal.action
    cause = world.book.incidents.get(proposal.incident_id)
    users = cause is not None and cause.users_doing and not _hands_over(world, cause, action)
    if users and (half := purse.half_spent(action)) is not None:
        text = f"half of budget {half.name} is spent: the rest is for faults that no user's job can cause"
        return WithheldProposal(Ban.CAP, text)
    again = isinstance(action, Drain) and cause is not None and cause.drain_lost_at is not None  # slurmctld forgot it
    ordered = cause is not None and cause.only_ordered and not again
    if ordered and (short := purse.short_for_order(action, proposal.incident_id)):
        return WithheldProposal(Ban.CAP, "; ".join(map(why_kept_for_faults, short)))
    if cause is not None and (ended := purse.cannot_end(action, cause)) is not None:
        return WithheldProposal(Ban.CAP, f"{why_spent(ended)}; a launch waits until the old machine may be ended")
    spent = purse.take(action)
    if ordered and spent is None:
        purse.promise(action, proposal.incident_id)
    return WithheldProposal(Ban.CAP, why_spent(spent)) if spent is not None else None


def _hands_over(world: World, incident: Incident, action: Action) -> bool:
    """Whether the step ends a machine whose successor is launched: half done, it would leave two of them."""
    ends = isinstance(action, Terminate) and action.instance_id == incident.instance_id
    return ends and replacement.launched(world, incident) is not None


def brake_about(world: World, holding: Sequence[Brake], proposal: Proposal) -> Brake | None:
    """The brake that holds the proposal: a drain, a running job's stop, a step at a machine. None does where the provider's own API says
    that the machine goes, or is off. A DOWN is for a node that two witnesses found dead: its jobs have lost it already."""
    action = proposal.action
    if not (isinstance(action, Drain) or proposal.stops_running_job or budget_of(action) is not None):
        return None
    incident = world.book.incidents.get(proposal.incident_id)
    if incident is not None and evidence.died_of_power(world, incident):
        return None
    mine = brake_scopes.about(world, holding, nodes_of(world, proposal)) if holding else []
    planned, tasks = _first(mine, BrakeKind.PLANNED_STOPS), _first(mine, BrakeKind.TASK_DRAINS)
    if tasks is not None and incident is not None and incident.users_doing:
        return tasks
    if incident is not None and notices.goes_soon(world, incident.id):
        if incident.notice:
            return None
        if notices.by_agent_alone(world, incident):
            return planned
    return _first(mine, BrakeKind.DRAINS, BrakeKind.JOB_STOPS)


def _first(brakes: Iterable[Brake], *kinds: BrakeKind) -> Brake | None:
    return next((brake for brake in brakes if brake.kind in kinds), None)


def _in_other_hands(world: World, proposal: Proposal) -> WithheldProposal | None:
    """Nothing is done to a node in an operator's hands, and no running job is stopped for a fault on it."""
    action, cause = proposal.action, world.book.incidents.get(proposal.incident_id)
    if isinstance(action, SendOrder) and action.verb in _LOOKS:
        return None
    node = action.target.node or (cause.node if cause is not None and proposal.stops_running_job else None)
    hands = hands_off.on(world, node) if node else None
    held = hands is not None and hands.holds_incidents
    return WithheldProposal(Ban.HANDS_OFF, hands.text) if hands is not None and held else None


def _unasked(early: Collection[str], proposal: Proposal) -> WithheldProposal | None:
    """Just after a start no node is drained, and no running job stopped, on agents' notices that the provider itself may confirm."""
    if proposal.incident_id not in early or not (_at_the_node(proposal) or proposal.stops_running_job):
        return None
    return WithheldProposal(Ban.UNASKED, "the provider has not been asked yet whether the machine goes")


def _at_the_node(proposal: Proposal) -> bool:
    return isinstance(proposal.action, Drain) or budget_of(proposal.action) is not None


def _disputed(world: World, in_dispute: Contested, proposal: Proposal) -> WithheldProposal | None:
    action = proposal.action
    dispute = in_dispute.about(action)
    if isinstance(action, Reboot) and action.via_slurm and world.view is not None:
        other = shared_address(action.node, {n: (each.address, each.port) for n, each in world.view.nodes.items()})
        if other is not None:
            text = f"Slurm has one address for {action.node} and {other}: an order to reboot may reach the wrong one"
            return WithheldProposal(Ban.DISPUTE, text)
    if dispute is None:
        return None
    return WithheldProposal(
        Ban.DISPUTE, f"{dispute.text}: nothing is done to the machines of {', '.join(dispute.held)}"
    )


def _unreadable(world: World, proposal: Proposal) -> WithheldProposal | None:
    """Only a drain is done about a node of which an incident cannot be read: what was done about it already is not known."""
    incident = node_incidents.unreadable_incident(world.book, proposal.incident_id, proposal.action)
    if incident is None:
        return None
    text = (
        f"incident {incident.id} of node {incident.node} cannot be read: nothing but a drain is done about the node; "
        f"check it, then holdfast incident close {incident.id}"
    )
    return WithheldProposal(Ban.UNREADABLE, text)


_CONSEQUENCES: Mapping[type[Action], Consequence] = {
    Drain: Consequence.DRAIN,
    TakeOverDrain: Consequence.DRAIN,
    SetDown: Consequence.SET_DOWN,
    Reboot: Consequence.REBOOT,
    StopStart: Consequence.END_MACHINE,
    Replace: Consequence.END_MACHINE,
    Launch: Consequence.END_MACHINE,
    Terminate: Consequence.END_MACHINE,
}


class _Deaths:
    """Actions that the verdict about a silent node allows, checked again for each step."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._held: Mapping[str, common_cause.SilentGroup] | None = None

    def withhold(self, proposal: Proposal) -> WithheldProposal | None:
        what = _CONSEQUENCES.get(type(proposal.action))
        incident = self._world.book.incidents.get(proposal.incident_id)
        view = self._world.view
        if what is None or incident is None or view is None or incident.node not in view.nodes:
            return None
        if proposal.action.target.node != incident.node or not may_touch.about_silence(self._world, incident):
            return None
        if isinstance(proposal.action, Terminate) and proposal.action.instance_id != incident.serving_id:
            return None  # launched in vain: it serves no one
        if isinstance(proposal.action, Drain) and incident.drain_lost_at is not None:
            return None  # as it was before slurmctld forgot it: what serves now proves itself behind the drain
        if isinstance(proposal.action, SetDown) and view.nodes[incident.node].down:
            return None  # Slurm's own DOWN, made ours so that we may take it back
        if self._held is None:
            silent = silent_nodes.silent_nodes(self._world)
            self._held = common_cause.keeping_machines(common_cause.groups(self._world, silent))
        held = common_cause.holds(self._world, incident, self._held)
        why = may_touch.why_not(self._world, view, incident, what, held)
        return WithheldProposal(Ban.DEATHS, why.text) if why is not None else None
