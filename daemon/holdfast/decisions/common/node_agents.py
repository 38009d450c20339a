"""A node's agents: which of them report, and orders to one of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from holdfast.model.actions.action import SendOrder, Verb
from holdfast.model.agents.report import AgentView
from holdfast.model.book import World


def is_silent(world: World, agent: AgentView) -> bool:
    """Whether the agent has not reported for ``silent_after_heartbeats`` of its intervals."""
    return agent.last_heard < silent_before(world, agent.heartbeat_interval_s)


def silent_before(world: World, heartbeat_interval_s: float) -> datetime:
    """Time limit: an agent with this interval is silent if its last report is older."""
    return world.now - timedelta(seconds=heartbeat_interval_s * world.policy.death.silent_after_heartbeats)


def agent_of(world: World, node: str, instance_id: str | None = None) -> AgentView | None:
    """The agent of the node (on that machine) that reported last, if it is not silent."""
    heard = [
        a
        for a in world.agents.get(node, ())
        if (instance_id is None or a.instance_id == instance_id) and not is_silent(world, a)
    ]
    return max(heard, key=lambda a: a.last_heard, default=None)


def unheard_yet(world: World, node: str, instance_id: str | None = None) -> bool:
    """Whether this controller has just started and the node's agent (on that machine) has not reported to it yet: its silence means
    nothing, and no repair may rest on it."""
    return world.frozen is not None and agent_of(world, node, instance_id) is None


def order_to(agent: AgentView, verb: Verb, expires_s: float, args: Mapping[str, Any]) -> SendOrder:
    """An order for this agent in this boot of its machine, and no other."""
    return SendOrder(agent.node, agent.instance_id, agent.boot_id, verb, expires_s, args)
