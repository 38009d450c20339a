"""Notifications about nodes that Slurm set DOWN and that only a resume brings back. Pure."""

from __future__ import annotations

from datetime import timedelta

from holdfast.decisions.common import node_agents, slurm_view
from holdfast.decisions.common.part import Part
from holdfast.decisions.nodes import stays_down
from holdfast.model.actions import steps
from holdfast.model.actions.action import IntentState, Notify, Proposal
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident
from holdfast.model.notice import NoticeLevel, Topic
from holdfast.model.slurm.cluster import ClusterView, Node

PAUSE_S = 600.0
"""Least time between two messages: nodes found in between share the next one."""
_NOT_TOLD = (IntentState.FAILED, IntentState.WITHHELD)
_NAMED = 16
"""Most nodes described; the others are only counted."""


def tell_of_nodes_down(world: World) -> Part:
    """One message for all nodes that stay DOWN, whenever there is a new one among them."""
    view = slurm_view.fresh_view(world)
    mine = [i for i in world.book.open_incidents() if stays_down.is_about(i) and not i.acknowledged]
    mine = [i for i in mine if view is not None and i.node in view.nodes]
    step = steps.notify_stays_down()
    told = (i.planned_at for i in world.book.intents.values() if i.step == step and i.state not in _NOT_TOLD)
    newest = max(told, default=None)
    new = [i for i in mine if newest is None or i.opened_at > newest]
    paused = newest is not None and world.now - newest < timedelta(seconds=PAUSE_S)
    if view is None or not new or paused or not world.may_try(new[0].id, step):
        return Part()
    return Part((Proposal(new[0].id, step, _message(world, view, mine), new[0].headline, order=95),))


def _message(world: World, view: ClusterView, incidents: list[Incident]) -> Notify:
    nodes = sorted({i.node for i in incidents})
    resume = f"scontrol update nodename={','.join(nodes)} state=resume"
    subject = f"{nodes[0]} stays DOWN" if len(nodes) == 1 else f"{len(nodes)} nodes stay DOWN"
    lines = [_line(world, view.nodes[name]) for name in nodes[:_NAMED]]
    lines += [f"and {len(nodes) - _NAMED} more"] if len(nodes) > _NAMED else []
    returns = world.background.return_to_service
    setting = f" (ReturnToService={returns})" if returns is not None else ""
    body = (
        "\n".join(lines)
        + f"\nSlurm leaves them DOWN until they are resumed{setting}; Holdfast does not overrule that. "
        f"Once they are fit: {resume}"
    )
    return Notify(subject, body, NoticeLevel.NEEDS_SOMEBODY, Topic.STAYS_DOWN, tuple(nodes))


def _line(world: World, node: Node) -> str:
    agent = node_agents.agent_of(world, node.name)
    since = f" since {node.reason_time:%Y-%m-%d %H:%M:%S} UTC" if node.reason_time is not None else ""
    if agent is None:
        state = "its agent does not report: look at its console"
    elif not node.responding:
        state = "its agent reports, Slurm does not hear its slurmd: start that first"
    else:
        state = f"it reports, its checks find {', '.join(agent.failing) if agent.failing else 'nothing'}"
    how = "rebooted by Slurm for an operator" if node.reboot_issued else "DOWN"
    return f"{node.name}: {how}{since} ({node.reason}); {state}"
