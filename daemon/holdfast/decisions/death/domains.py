"""Failure domains: nodes that share a management switch or a PDU, and the witnesses that follow from that. Pure.

A domain is a setting (``[death] domains``), by default the subnet of the node's address. A node's *watchers* are the peers of its domain
that try to reach it now and then in calm times: only one that has reached it before can bear witness that it is gone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address, ip_network

from holdfast.decisions.common import node_agents
from holdfast.model.agents.report import AgentView
from holdfast.model.book import World
from holdfast.model.incidents.incident import IncidentState
from holdfast.model.policies.policy import DeathPolicy
from holdfast.model.slurm.cluster import ClusterView, Node
from holdfast.model.slurm.hostlist import expand

_ON_TRIAL = frozenset({IncidentState.REPAIRING, IncidentState.VALIDATING})
_IPV6_PREFIX = 64


@lru_cache(maxsize=32_768)
def _subnet(address: str, prefix: int) -> str | None:
    try:
        known = ip_address(address)
        return str(ip_network((known, prefix if known.version == 4 else _IPV6_PREFIX), strict=False))
    except ValueError:
        return None


@lru_cache(maxsize=64)
def _named(domains: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return {name: domain for hostlist, domain in domains for name in expand(hostlist)}


def domain_of(node: Node, policy: DeathPolicy, addresses: Mapping[str, str]) -> str | None:
    """The node's failure domain; None: not known. ``addresses``: node → IP address, where Slurm shows a name as its address."""
    named = _named(tuple(policy.domains.items())).get(node.name)
    if named is not None:
        return named
    return _subnet(addresses.get(node.name, node.address), policy.domain_prefix)


def domains(view: ClusterView, policy: DeathPolicy, addresses: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Domain → its nodes by name; nodes of an unknown domain are in none."""
    found: dict[str, list[str]] = {}
    named = _named(tuple(policy.domains.items()))
    for name, node in sorted(view.nodes.items()):
        domain = named[name] if name in named else _subnet(addresses.get(name, node.address), policy.domain_prefix)
        if domain is not None:
            found.setdefault(domain, []).append(name)
    return {domain: tuple(names) for domain, names in found.items()}


def watchers(members: tuple[str, ...], node: str) -> tuple[str, ...]:
    """Peers that try to reach the node in calm times: two neighbours by name, and two further away, which a local fault may spare."""
    size = len(members)
    here = members.index(node)
    return tuple(dict.fromkeys(members[(here + step) % size] for step in _steps(size) if step % size))


def watched_by(members: tuple[str, ...], watcher: str) -> tuple[str, ...]:
    """The nodes that have this one as a watcher."""
    size = len(members)
    here = members.index(watcher)
    return tuple(dict.fromkeys(members[(here - step) % size] for step in _steps(size) if step % size))


def _steps(size: int) -> tuple[int, ...]:
    return (1, 2, size // 3, size // 2)


def on_duty(world: World, name: str) -> AgentView | None:
    """The agent of the machine that serves the node, if it reports; None for one that is on trial: a machine on trial is no witness."""
    if any(i.state in _ON_TRIAL for i in world.book.open_on(name)):
        return None
    record = world.book.nodes.get(name)
    return node_agents.agent_of(world, name, (record.instance_id or None) if record is not None else None)


def all_on_duty(world: World) -> dict[str, AgentView]:
    """:func:`on_duty` of every node that has one."""
    trial = {i.node for i in world.book.open_incidents() if i.state in _ON_TRIAL}
    found = {}
    for name in world.agents:
        record = world.book.nodes.get(name)
        agent = node_agents.agent_of(world, name, (record.instance_id or None) if record is not None else None)
        if agent is not None and name not in trial:
            found[name] = agent
    return found


def why_no_witness(world: World, view: ClusterView, node: str) -> str | None:
    """Reason why no peer can bear witness about the node; None: some can."""
    domain = domain_of(view.nodes[node], world.policy.death, world.background.addresses)
    if domain is None:
        return "its failure domain is not known ([death] domains)"
    members = domains(view, world.policy.death, world.background.addresses)[domain]
    if len(members) == 1:
        return f"it is the only node of its failure domain {domain}"
    if not any(on_duty(world, name) is not None for name in members if name != node):
        return f"no other node of its failure domain {domain} reports"
    return None
