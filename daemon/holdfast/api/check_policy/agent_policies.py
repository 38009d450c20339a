"""Agents that do not go by the policy of checks of their node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.api.deps import ApiDeps
from holdfast.decisions.common.check_policy import Versions, checks_for
from holdfast.model.agents.report import AgentView
from holdfast.model.incidents.fleet import natural
from holdfast.model.slurm.cluster import Node


def shown_nodes(deps: ApiDeps) -> Mapping[str, Node]:
    """As Slurm shows them; empty: it was not read yet."""
    world = deps.world()
    return world.view.nodes if world is not None and world.view is not None else {}


def newest_agents(deps: ApiDeps) -> Iterator[AgentView]:
    """The newest agent of each node."""
    return (each[-1] for each in deps.agents.views().values() if each)


def older(deps: ApiDeps) -> list[str]:
    """Nodes, in natural order, whose agents take policies and go by another version than theirs now. A node that Slurm does not show keeps
    what it has."""
    nodes, version_of = shown_nodes(deps), Versions(deps.policy)
    found = (
        agent.node
        for agent in newest_agents(deps)
        if agent.checks_version is not None
        and (node := nodes.get(agent.node)) is not None
        and agent.checks_version != version_of(agent.node, node)
    )
    return sorted(found, key=natural)


def never_off(deps: ApiDeps) -> list[str]:
    """Nodes, in natural order, on which checks are to be off, and whose agents are of a release that cannot switch them off: what they find
    counts as a warning."""
    nodes = shown_nodes(deps)
    silent = (a for a in newest_agents(deps) if a.checks_off is None)
    return sorted((a.node for a in silent if checks_for(a.node, nodes.get(a.node), deps.policy).off), key=natural)


def refused(deps: ApiDeps) -> dict[str, str]:
    """Node → why its agent refused the policy, in natural order."""
    found = {agent.node: agent.checks_refused for agent in newest_agents(deps) if agent.checks_refused}
    return {name: found[name] for name in sorted(found, key=natural)}
