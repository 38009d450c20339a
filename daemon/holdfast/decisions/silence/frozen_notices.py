"""Notification that verdicts on dead nodes are frozen. Pure.

Verdicts are frozen when too many agents are silent at once: the controller's own network is the suspect. That is right for a minute; as a
lasting state it means that no dead node is found."""

from __future__ import annotations

from datetime import timedelta

from holdfast.decisions.common.part import Part
from holdfast.decisions.silence import silent_nodes
from holdfast.model.actions import steps
from holdfast.model.actions.action import Notify, Proposal
from holdfast.model.book import World
from holdfast.model.conditions import ConditionKind
from holdfast.model.ids import UPKEEP
from holdfast.model.notice import NoticeLevel, Topic
from holdfast.model.policies.lookback import STEP_HOUR_S

AFTER_S = 300.0
"""A shorter freeze is not notified."""


def tell_of_freeze(world: World) -> Part:
    """One notification in each hour of a freeze that lasts for more than five minutes."""
    since = silent_nodes.frozen_since(world)
    if since is None or world.now - since <= timedelta(seconds=AFTER_S):
        return Part()
    step = steps.notify_frozen(since, int((world.now - since).total_seconds()) // STEP_HOUR_S)
    if not world.may_try(UPKEEP, step):
        return Part()
    why = silent_nodes.freeze_reason(world) or ""
    subject = f"no dead node is found since {since:%H:%M} UTC: many agents are silent"
    body = (
        f"{why}. Until most of them report again no silent node is suspected, set DOWN or replaced. Check the network between the head "
        "node and the nodes, and the agents (systemctl status holdfast-agent). Nodes that are gone for good: take them out of slurm.conf, "
        "or drain them; they count no more then. holdfast nodes"
    )
    lasts = world.conditions.key(ConditionKind.FREEZE, "")
    notify = Notify(subject, body, NoticeLevel.NEEDS_SOMEBODY, Topic.VERDICTS_FROZEN, condition=lasts)
    return Part((Proposal(UPKEEP, step, notify, why, order=90),))
