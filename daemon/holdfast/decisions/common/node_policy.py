"""What may be done to a node, by the ``[[nodes]]`` tables and ``[mode]``. Pure.

The most restrictive table that has the node wins, and ``[mode] mode`` is the most that is done to any node. What is not known of a node is
never a reason to do more: while Slurm does not show it, each table that goes by partition or feature counts as having it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

from holdfast.model.book import World
from holdfast.model.operators.proposals import StepKind
from holdfast.model.policies.node_sets import RUNGS, NodeSet
from holdfast.model.policies.policy import Mode, Policy
from holdfast.model.slurm.cluster import Node
from holdfast_checks.words import known


@dataclass(frozen=True, slots=True)
class NodePolicy:
    """What may be done to one node, or to what runs on several."""

    mode: Mode
    asks: frozenset[StepKind] = frozenset()
    """Kinds of steps that wait for an operator's accept; empty unless the mode is propose."""
    rungs: frozenset[str] = frozenset(RUNGS)
    """Rungs of the ladder that may be used."""
    never_touch: bool = False
    """Nothing is ever done, whatever an operator accepts."""
    sets: tuple[str, ...] = ()
    """Names of the tables that have the node."""
    why: str = ""
    """What made the mode what it is, for people."""

    def and_also(self, other: NodePolicy) -> NodePolicy:
        """The more restrictive of both, in each point."""
        mode = self.mode.least(other.mode)
        return NodePolicy(
            mode,
            self.asks | other.asks if mode is Mode.PROPOSE else frozenset(),
            self.rungs & other.rungs,
            self.never_touch or other.never_touch,
            tuple(dict.fromkeys((*self.sets, *other.sets))),
            (self if self.mode is mode else other).why if not other.never_touch else other.why,
        )


def policy_of(node: str, world: World) -> NodePolicy:
    """What may be done to this node now."""
    shown = world.view.nodes.get(node) if world.view is not None else None
    return policy_for(node, shown, world.policy)


def policy_for(name: str, node: Node | None, policy: Policy) -> NodePolicy:
    """The same from the settings and the node as Slurm shows it; None: it is not known."""
    mine = [each for each in policy.nodes if each.has(name, node)]
    site = site_policy(policy)
    said = [_of_set(each, policy) for each in mine]
    if not mine and policy.other_nodes:
        said.append(_plain(policy, Mode(policy.other_nodes), "[mode] other_nodes"))
    return reduce(NodePolicy.and_also, said, site)


def site_policy(policy: Policy) -> NodePolicy:
    """What may be done at most, to any node."""
    return _plain(policy, policy.mode, "[mode] mode")


def least_of(nodes: Iterable[str], world: World) -> NodePolicy:
    """What may be done to what runs on all of these nodes: the most restrictive of them counts. Without nodes: as the site says."""
    if not world.policy.nodes and not world.policy.other_nodes:
        return site_policy(world.policy)
    return reduce(NodePolicy.and_also, (policy_of(node, world) for node in nodes), site_policy(world.policy))


def least_shown(nodes: Iterable[str], shown: Mapping[str, Node], policy: Policy) -> NodePolicy:
    """As :func:`least_of`, from the settings and Slurm's nodes alone."""
    return reduce(
        NodePolicy.and_also, (policy_for(name, shown.get(name), policy) for name in nodes), site_policy(policy)
    )


def _plain(policy: Policy, mode: Mode, why: str) -> NodePolicy:
    asks = _kinds(policy.propose.steps) if mode is Mode.PROPOSE else frozenset[StepKind]()
    return NodePolicy(mode, asks, frozenset(policy.repair.rungs), why=f"{why} = {mode.value!r}")


def _of_set(each: NodeSet, policy: Policy) -> NodePolicy:
    if each.never_touch:
        return NodePolicy(
            Mode.OBSERVE, frozenset(), frozenset(), True, (each.name,), f"node set {each.name!r}: never_touch"
        )
    mode = Mode(each.mode) if each.mode else policy.mode
    asks = _kinds(each.steps or policy.propose.steps) if mode is Mode.PROPOSE else frozenset[StepKind]()
    why = f"node set {each.name!r}: mode = {mode.value!r}" if each.mode else f"[mode] mode = {mode.value!r}"
    return NodePolicy(mode, asks, frozenset(each.rungs), False, (each.name,), why)


def _kinds(steps: Iterable[str]) -> frozenset[StepKind]:
    return frozenset(kind for step in steps if (kind := known(StepKind, step)) is not None)
