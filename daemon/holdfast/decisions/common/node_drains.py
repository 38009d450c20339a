"""Who took a node out of service, and whether Slurm still shows it. Pure."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

from holdfast.decisions.common import attempted_steps
from holdfast.model.actions import steps
from holdfast.model.actions.action import Action, Drain, Intent, IntentState, SetDown, Undrain
from holdfast.model.book import NodeMark, World
from holdfast.model.ids import has_slurms_words, held_reason, incident_of_reason, is_reason, without_slurms_words
from holdfast.model.incidents.incident import Incident
from holdfast.model.operators.node_orders import order_of
from holdfast.model.slurm.cluster import ClusterView, Node

VIEW_LAG = timedelta(seconds=3)
"""A view read later than this after a step shows the step."""


class DrainedBy(StrEnum):
    """Who took a node out of service. The values are part of the record (``by`` of ``node.out_of_service``)."""

    OURS = "ours"
    """The drain, or DOWN, that the store has the mark of, or that is being set now."""
    FOREIGN = "foreign"
    """A person or another tool, also where the reason reads like one of Holdfast's."""
    SLURM = "slurm"
    """slurmctld set it DOWN."""


def drained_by(world: World, node: Node) -> DrainedBy | None:
    """Who took the node out of service; None: it is in service."""
    if not node.out_of_service:
        return None
    if node.down_by_slurm:
        return DrainedBy.SLURM
    if incident_of_reason(node.reason) is None:
        return DrainedBy.FOREIGN
    recorded = is_marked(world.book.marks.get(node.name), node)
    return DrainedBy.OURS if recorded or _being_set(world, node) else DrainedBy.FOREIGN


def is_marked(mark: NodeMark | None, node: Node) -> bool:
    """Whether the node is out of service by the drain of this mark. Slurm adds to its reason in SlurmUser's name and sets its time, when it
    reboots the node and when it sets it DOWN for silence. While a reboot waits to be issued, the reason may be unchanged except for a new
    time."""
    if mark is None:
        return False
    if mark.is_on(node):
        return True
    same = is_reason(without_slurms_words(node.reason), without_slurms_words(mark.reason))
    return same and (node.rebooting or has_slurms_words(node.reason))


def _being_set(world: World, node: Node) -> bool:
    """Whether a step of an open incident is setting this drain, with this reason, and its mark is not stored yet; or the view is older than
    a step that has set or cleared the mark since."""
    incidents = world.book.open_on(node.name)
    intents = [(i.id, intent) for i in incidents for intent in world.book.intents_of(i.id)]
    outdated = any(isinstance(i.action, Drain | SetDown | Undrain) and _not_in_view(world, i) for _, i in intents)
    counts = {IntentState.PLANNED, IntentState.STARTED} | ({IntentState.DONE} if outdated else set())
    return any(i.state in counts and is_reason(node.reason, *_reasons(i.action, number)) for number, i in intents)


def _not_in_view(world: World, intent: Intent) -> bool:
    """The step was done so shortly before the view was read that it may not show it."""
    if world.view is None or intent.state is not IntentState.DONE or intent.finished_at is None:
        return False
    return world.view.read_at - intent.finished_at <= VIEW_LAG


def _reasons(action: Action, incident_id: str) -> tuple[str, ...]:
    """Reason texts of a node, word for word, that a step sets or clears."""
    if isinstance(action, Drain | SetDown):
        return (action.reason, held_reason(incident_id))
    return (action.mark,) if isinstance(action, Undrain) else ()


def drained_by_others(world: World, node: Node) -> bool:
    """Whether an operator or another tool took it out of service: they have to return it."""
    return drained_by(world, node) is DrainedBy.FOREIGN


def who_drained(world: World, node: Node) -> str:
    """Who took the node out of service, for people: the operator who ordered it through Holdfast, else Slurm's user."""
    order = order_of(world.book.node_orders, node.name, node.reason)
    return order.by if order is not None else node.reason_user or "another user"


def drained_by_us(world: World, node: Node) -> bool:
    return drained_by(world, node) is DrainedBy.OURS


def died_while_drained(world: World, view: ClusterView, incident: Incident) -> bool:
    """Its node was ours to drain when it died, and is not DOWN yet. A DOWN that slurmctld has forgotten is not set a second time: the
    jobs of then are over."""
    node = view.nodes[incident.node]
    if not incident.dead or node.down or not drained_by_us(world, node):
        return False
    return attempted_steps.done(world.book.attempts(incident.id, steps.set_down(incident.node))) is None


def drain_missing(view: ClusterView, incident: Incident) -> bool:
    """Slurm has forgotten the drain of the incident's node, and the node is in service until it is drained again."""
    return incident.drain_lost_at is not None and not view.nodes[incident.node].out_of_service
