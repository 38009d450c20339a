"""Notifications about a machine that two nodes claim. Pure. :mod:`holdfast.decisions.machines.disputes` follows the disputes."""

from __future__ import annotations

from holdfast.decisions.common.part import Part
from holdfast.model.actions import steps
from holdfast.model.actions.action import Notify, Proposal
from holdfast.model.book import World
from holdfast.model.incidents.incident import IncidentKind
from holdfast.model.notice import NoticeLevel, Topic


def tell_of_disputes(world: World) -> Part:
    """Notify an operator of each dispute once, with both nodes named."""
    proposals = []
    for incident in world.book.open_incidents():
        step = steps.notify_dispute()
        if incident.kind is IncidentKind.DISPUTED and world.may_try(incident.id, step):
            body = (
                f"{incident.headline}\n{incident.note}\n"
                "One of the agents is misconfigured, cloned, or lies. Look at instance_id in agent.toml on these nodes, and at the node's "
                "name in the provider's tags."
            )
            action = Notify(
                f"two nodes, one machine: {incident.headline}",
                body,
                NoticeLevel.NEEDS_SOMEBODY,
                Topic.TWO_NODES_ONE_MACHINE,
            )
            proposals.append(Proposal(incident.id, step, action, incident.headline, order=50))
    return Part(tuple(proposals))
