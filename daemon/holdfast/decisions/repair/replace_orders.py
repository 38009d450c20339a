"""Operators' orders to replace a node's machine: each becomes an incident, directs the one that is open, or is dropped. Pure.

The incident survives the order (which is kept for an hour) and every restart; it names the order, so that none is taken twice. What the
API refuses is refused here again, since the cluster may have changed in between; people are notified once, and the node's history says why.
Docs: ``docs/decisions/0040-an-order-to-replace-is-an-incident.md``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from holdfast.decisions.common import node_drains, node_incidents, slurm_view
from holdfast.decisions.common.node_policy import policy_of
from holdfast.decisions.common.part import Part
from holdfast.decisions.death.verdict import Consequence
from holdfast.decisions.nodes import hands_off, ordered_replacement
from holdfast.decisions.repair import ladder, order_waits, repair_progress
from holdfast.decisions.silence import may_touch
from holdfast.decisions.spares.pool import spare_pool
from holdfast.model.actions import steps
from holdfast.model.actions.action import Drain, Notify, Proposal
from holdfast.model.book import Change, World
from holdfast.model.event import Event, EventKind
from holdfast.model.ids import UPKEEP, NewId
from holdfast.model.incidents.incident import ABOUT_JOBS, NOT_OF_A_NODE, Incident, IncidentKind, IncidentState, MovedBy
from holdfast.model.incidents.transitions import Moved, NewIncident, move, open_incident, remark
from holdfast.model.notice import NoticeLevel, Topic
from holdfast.model.operators.node_orders import EXPIRES, MachineOrder, NodeOrder, OrderVerb
from holdfast.model.policies.policy import Mode
from holdfast.model.slurm.cluster import ClusterView
from holdfast_checks.result import Remedy, Severity

CHECK = "operator.replace"
"""Shown as the check of an incident that an order opened."""
STEP = "ReplaceOrder"
"""Kind in the event of an order that is not carried out."""
_MOST_EARLIER = 100
"""Earlier orders that an incident remembers; each is kept for an hour."""
_MAY_BE_DIRECTED = frozenset({IncidentState.OPEN, IncidentState.CONTAINED, IncidentState.AWAITING_HUMAN})


class OrderRefusal(StrEnum):
    """Kind of reason for which an order to replace is not taken."""

    UNKNOWN_NODE = "unknown_node"
    SPARE = "spare"
    MAINTENANCE = "maintenance"
    OTHER_MACHINE = "other_machine"
    """The operator saw another machine, or it is not known which one serves the node."""
    DRAINED_BY_OTHERS = "drained_by_others"
    NO_SUCH_DRAIN = "no_such_drain"
    """The order is to take over a drain that is not there."""
    CANNOT_REPLACE = "cannot_replace"
    NEVER_TOUCH = "never_touch"
    OBSERVE = "observe"
    """Recorded as what would be done."""
    ORDERED_ALREADY = "ordered_already"
    AT_WORK = "at_work"
    """Holdfast repairs the node, or finds out whether it is dead."""
    NOT_OURS = "not_ours"
    """An incident of the node is an operator's, or cannot be read."""
    LATER_ORDER = "later_order"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class OrderRefused:
    why: OrderRefusal
    text: str
    """One line for people: what is so, and what to do."""


_Asked = Callable[[World, ClusterView, NodeOrder], OrderRefused | None]


def refused(world: World, view: ClusterView, order: NodeOrder) -> OrderRefused | None:
    """Reason not to take the order now; None: it may be taken. ``world`` has a reading of the provider."""
    return next((found for ask in _ASKED if (found := ask(world, view, order)) is not None), None)


def _unknown(_world: World, view: ClusterView, order: NodeOrder) -> OrderRefused | None:
    if order.node in view.nodes:
        return None
    return OrderRefused(OrderRefusal.UNKNOWN_NODE, f"Slurm knows no node {order.node}; holdfast nodes lists them")


def _forbidden(world: World, _view: ClusterView, order: NodeOrder) -> OrderRefused | None:
    policy = policy_of(order.node, world)
    if policy.never_touch:
        text = f"nothing is ever done to {order.node} ({policy.why}): replace its machine by hand"
        return OrderRefused(OrderRefusal.NEVER_TOUCH, text)
    return None


def _observed(world: World, _view: ClusterView, order: NodeOrder) -> OrderRefused | None:
    policy = policy_of(order.node, world)
    if policy.mode is not Mode.OBSERVE:
        return None
    would = f"would drain {order.node}, wait for its jobs, replace machine {order.instance_id}, and test and return the new one"
    return OrderRefused(OrderRefusal.OBSERVE, f"observe mode ({policy.why}): recorded, not done; {would}")


def _cannot(world: World, _view: ClusterView, order: NodeOrder) -> OrderRefused | None:
    provider = world.book.provider
    name = provider.name if provider is not None else "?"
    if provider is not None and provider.repairs_itself:
        text = f"provider {name!r} repairs automatically, and Holdfast orders no machine of it: replace it with the provider's own tools"
        return OrderRefused(OrderRefusal.CANNOT_REPLACE, text)
    if ladder.can_replace(world, order.node, known=True):
        return None
    text = f"provider {name!r} cannot replace a machine, or [repair] rungs or the node's set has no 'replace': replace it by hand"
    return OrderRefused(OrderRefusal.CANNOT_REPLACE, text)


def _spare(world: World, view: ClusterView, order: NodeOrder) -> OrderRefused | None:
    if order.node not in spare_pool(world, view):
        return None
    text = f"{order.node} is a spare: take it out of the reservation of the pool first (scontrol), then order it again"
    return OrderRefused(OrderRefusal.SPARE, text)


def _in_hands(world: World, _view: ClusterView, order: NodeOrder) -> OrderRefused | None:
    hands = hands_off.on(world, order.node)
    if hands is None or hands.hands is hands_off.Hands.DRAINED:
        return None
    return OrderRefused(OrderRefusal.MAINTENANCE, f"{order.node}: {hands.whose}; order it again once that has ended")


def _machine(world: World, _view: ClusterView, order: NodeOrder) -> OrderRefused | None:
    record = world.book.nodes.get(order.node)
    if record is None or not record.instance_id or not order.instance_id:
        text = f"which machine serves {order.node} is not known: its agent has to report first (holdfast doctor)"
        return OrderRefused(OrderRefusal.OTHER_MACHINE, text)
    other = ordered_replacement.other_machine(world, order.node, order)
    if other is None and ordered_replacement.other_gpus(world, order.node, order):
        text = f"machine {order.instance_id} of {order.node} has other GPUs than when it was ordered: look, then order it again"
        return OrderRefused(OrderRefusal.OTHER_MACHINE, text)
    if other is None:
        return None
    text = f"machine {other} serves {order.node} now, not {order.instance_id}: look, then order it again if that one is to go"
    return OrderRefused(OrderRefusal.OTHER_MACHINE, text)


def _drained(world: World, view: ClusterView, order: NodeOrder) -> OrderRefused | None:
    node = view.nodes[order.node]
    if ordered_replacement.foreign_drain(world, node, order):
        who, reason = node_drains.who_drained(world, node), node.reason or "no reason given"
        text = f'{order.node} is drained by {who}: theirs; to take this very drain over: --over "{reason}"'
        return OrderRefused(OrderRefusal.DRAINED_BY_OTHERS, text)
    if order.over is not None and node.given_reason != order.over:
        text = f"{order.node} is not drained as {order.over.text!r} any more: look, then order it again"
        return OrderRefused(OrderRefusal.NO_SUCH_DRAIN, text)
    return None


def _at_work(world: World, view: ClusterView, order: NodeOrder) -> OrderRefused | None:
    """What the node's open incidents say."""
    mine = [i for i in world.book.open_on(order.node) if i.kind not in ABOUT_JOBS]
    refusals = (_of_incident(i, order) or _not_ended(world, view, i) for i in mine)
    return next((found for found in refusals if found is not None), None)


def _not_ended(world: World, view: ClusterView, incident: Incident) -> OrderRefused | None:
    """A node that is dead to Slurm while its provider shows the machine running: the end of it would be refused later."""
    if not may_touch.about_silence(world, incident):
        return None
    why = may_touch.why_not(world, view, incident, Consequence.END_MACHINE, None)
    if why is None or why.why is not may_touch.TouchReason.RUNNING:
        return None
    text = "the provider shows its machine running with its checks passing: power it off there, then order it again"
    return OrderRefused(OrderRefusal.AT_WORK, text)


def _of_incident(incident: Incident, order: NodeOrder) -> OrderRefused | None:
    about = f"incident {incident.id} of {order.node}"
    if incident.kind in NOT_OF_A_NODE or incident.acknowledged:
        whose = "was taken over by an operator" if incident.acknowledged else "has to be settled first"
        return OrderRefused(
            OrderRefusal.NOT_OURS, f"{about} {whose}: holdfast incident close {incident.id}, then order it again"
        )
    waits = incident.state is IncidentState.AWAITING_HUMAN
    if incident.ordered is not None and not waits:
        said = incident.ordered.who_and_why
        return OrderRefused(
            OrderRefusal.ORDERED_ALREADY,
            f"{about} carries out an order already, by {said}",
        )
    if incident.state is IncidentState.SUSPECTED:
        text = f"the agent of {order.node} is silent, and Holdfast finds out whether the node is dead ({about}): wait for the verdict"
        return OrderRefused(OrderRefusal.AT_WORK, text)
    if not node_incidents.acting(incident):
        return None
    if incident.state not in _MAY_BE_DIRECTED:
        text = f"Holdfast repairs {order.node} by now ({about}: {incident.state.value}): wait for the end, then order it again if need be"
        return OrderRefused(OrderRefusal.AT_WORK, text)
    if incident.serving_id not in ("", order.instance_id):
        text = f"{about} is about machine {incident.serving_id}, not {order.instance_id}: holdfast incident close {incident.id}"
        return OrderRefused(OrderRefusal.OTHER_MACHINE, text)
    return None


_ASKED: tuple[_Asked, ...] = (_unknown, _forbidden, _cannot, _spare, _in_hands, _machine, _drained, _at_work, _observed)
"""The first that applies is shown."""


def waits_for(world: World, view: ClusterView, order: NodeOrder) -> tuple[str, ...]:
    """What holds the order up now, for the operator who gives it; empty: it begins at once."""
    found = [f"Holdfast is paused by {world.book.paused}"] if world.book.paused is not None else []
    found += order_waits.held_by(world, Drain(order.node, ""))
    jobs = ",".join(str(j.key.job_id) for j in view.jobs_on(order.node))
    return (*found, *([f"job {jobs} is not stopped: it runs to its end"] if jobs else []))


# Taking them


def take_orders(world: World, new_id: NewId) -> Change:
    """Open an incident for each order, or direct the one at work on its node."""
    view = slurm_view.fresh_view(world)
    if view is None or world.book.provider is None:
        return Change()
    incidents: list[Incident] = []
    events: list[Event] = []
    for order in _untaken(world):
        was_dropped = world.book.planned(UPKEEP, steps.notify_order(order.id))  # for good, whatever has changed since
        if not was_dropped and _verdict(world, order) is None:
            incident, seen = _taken(world, order, new_id)
            incidents.append(incident)
            events += seen
    return Change(incidents=tuple(incidents), events=tuple(events))


def _untaken(world: World) -> list[NodeOrder]:
    orders = [o for o in world.book.node_orders if o.verb is OrderVerb.REPLACE]
    return [o for o in orders if not any(i.has_taken(o.id) for i in world.book.incidents.values())]


def _verdict(world: World, order: NodeOrder) -> OrderRefused | None:
    """Why the order is not taken (any more). None: it is, or waits for a reading of Slurm and the provider."""
    newest = [o for o in world.book.node_orders if o.node == order.node][-1]
    if newest.id != order.id:
        return OrderRefused(
            OrderRefusal.LATER_ORDER,
            f"{newest.by} gave another order for {order.node} ({newest.verb}) first",
        )
    if not order.due(world.now):
        minutes = EXPIRES.total_seconds() / 60
        text = f"Slurm or the provider could not be read within {minutes:.0f} min: order it again"
        return OrderRefused(OrderRefusal.EXPIRED, text)
    view = slurm_view.fresh_view(world)
    return refused(world, view, order) if view is not None and world.book.provider is not None else None


def _taken(world: World, order: NodeOrder, new_id: NewId) -> Moved:
    mine = [i for i in world.book.open_on(order.node) if i.kind not in ABOUT_JOBS and node_incidents.acting(i)]
    return _directed(world, mine[-1], order) if mine else _opened(world, order, new_id)


def _opened(world: World, order: NodeOrder, new_id: NewId) -> Moved:
    record = world.book.nodes.get(order.node)
    new = NewIncident(
        id=new_id(world.now),
        kind=IncidentKind.ORDERED,
        node=order.node,
        instance_id=order.instance_id,
        boot_id=record.boot_id if record is not None else "",
        severity=Severity.DEGRADED,
        remedy=Remedy.REPLACE,
        check=CHECK,
        headline=f"{CHECK}: ordered by {order.who_and_why}",
        fault_at=world.now,
        order=_kept(world, order),
    )
    return open_incident(new, IncidentState.OPEN, world.now)


def _kept(world: World, order: NodeOrder) -> MachineOrder:
    """As the incident keeps it; one of an older release says nothing of the machine's GPUs."""
    record, kept = world.book.nodes.get(order.node), order.for_machine
    known = record.gpu_uuids if record is not None and record.instance_id == order.instance_id else frozenset[str]()
    return replace(kept, gpus=order.gpus or known)


def _directed(world: World, incident: Incident, order: NodeOrder) -> Moved:
    """The incident goes for the replacement from here on. One that waits for an operator begins its attempts afresh, under a new number, so
    that people are notified again of what fails again."""
    machine = incident.instance_id or order.instance_id
    earlier = (*incident.earlier_orders, *([incident.order.id] if incident.order is not None else []))[-_MOST_EARLIER:]
    new = replace(
        incident,
        order=_kept(world, order),
        order_dropped="",
        order_withdrawn=False,
        earlier_orders=earlier,
        instance_id=machine,
    )
    text = f"replacement ordered by {order.who_and_why}"
    detail = {"who": order.by, "verb": "replace_node", "reason": order.reason, "ticket": order.ticket}
    if incident.state is not IncidentState.AWAITING_HUMAN:
        return replace(new, note=text), [remark(new, world.now, text, detail)]
    again = replace(repair_progress.attempt_over(new), rung="", validated_at=None)
    return move(again, IncidentState.CONTAINED, world.now, text, detail=detail, by=MovedBy.OPERATOR)


# Telling of those that are dropped


def tell_of_dropped_orders(world: World) -> Part:
    """A notice for each order that is not carried out, once; and an event for one that came to no incident."""
    of_incidents = [
        p for i in world.book.incidents.values() if i.order_dropped and (p := _of_dropped(world, i)) is not None
    ]
    proposals, events = list(of_incidents), list[Event]()
    for order in _untaken(world):
        why = _verdict(world, order)
        if why is None or not world.may_try(UPKEEP, steps.notify_order(order.id)):
            continue
        proposals.append(_notice(order, why.text, UPKEEP, withdrawn=_ended_by_operator(world, order, why)))
        if not world.book.planned(UPKEEP, steps.notify_order(order.id)):
            events.append(_not_done(world, order, why))
    return Part(tuple(proposals), events=tuple(events))


def _ended_by_operator(world: World, order: NodeOrder, why: OrderRefused) -> bool:
    """Whether the operator who gave the order gave another one in its place, or the node was released: no one has to act."""
    newest = [o for o in world.book.node_orders if o.node == order.node][-1]
    own = newest.by == order.by or newest.verb is OrderVerb.RELEASE
    return why.why is OrderRefusal.LATER_ORDER and own


def _of_dropped(world: World, incident: Incident) -> Proposal | None:
    """Of a closed incident within the time in which an order may be begun: later its notice is not on record any more."""
    order, closed_at = incident.order, incident.closed_at
    if order is None or (closed_at is not None and world.now - closed_at > EXPIRES):
        return None
    number = incident.id if incident.open else UPKEEP  # what is closed counts as over: no message would be sent
    if not all(world.may_try(each, steps.notify_order(order.id)) for each in (incident.id, UPKEEP)):
        return None
    return _notice(order, incident.order_dropped, number, withdrawn=incident.order_withdrawn)


def _notice(order: NodeOrder | MachineOrder, why: str, incident_id: str, *, withdrawn: bool) -> Proposal:
    """``withdrawn``: by an operator, so that no one has to act."""
    subject = f"{order.node}: the order of {order.by} to replace its machine is not carried out: {why}"
    body = f"{subject}\nOrdered by {order.who_and_why}, of machine {order.instance_id}."
    notify = Notify(subject, body, NoticeLevel.NEEDS_SOMEBODY, Topic.ORDER_DROPPED, (order.node,))
    notify = replace(notify, level=NoticeLevel.HEALED) if withdrawn else notify
    return Proposal(incident_id, steps.notify_order(order.id), notify, why, order=90)


def _not_done(world: World, order: NodeOrder, why: OrderRefused) -> Event:
    detail = {"kind": STEP, "who": order.by, "why": why.why.value, "ticket": order.ticket, "order": order.id}
    return Event(world.now, EventKind.ACTION_REFUSED, None, order.node, text=why.text, detail=detail)
