"""Nodes whose drains and stopped jobs a brake counts together: those of the site, and those of each node set with its own limits. Pure.

A node of two sets counts in both, and in the site's. While Slurm does not show a node, each set that goes by partition or feature counts as
having it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.decisions.common import slurm_view
from holdfast.model.book import Brake, BrakeKind, World, at_set
from holdfast.model.policies.lookback import BRAKE_LONG_S, BRAKE_SHORT_S
from holdfast.model.policies.node_sets import NodeSet
from holdfast.model.slurm.hostlist import compress


@dataclass(frozen=True, slots=True)
class BrakeScope:
    """One set of nodes, and the limits that hold for it."""

    windows: tuple[tuple[float, int], ...]
    """(window in seconds, most nodes) of the brakes on drains; empty: these never trip for the set."""
    stopped_nodes: int | None
    """Most nodes whose running jobs are stopped within an hour; None: no limit."""
    node_set: NodeSet | None = None
    """None: the whole site."""

    @property
    def name(self) -> str:
        """Of the set; empty: the site."""
        return self.node_set.name if self.node_set is not None else ""

    @property
    def of_set(self) -> str:
        """Behind "nodes", for people."""
        return f" of set {self.name!r}" if self.name else ""

    def has(self, world: World, node: str) -> bool:
        shown = world.view.nodes.get(node) if world.view is not None else None
        return self.node_set is None or self.node_set.has(node, shown)

    def nodes(self, world: World) -> str:
        """The set's nodes now, as a host list; empty: the site, so all of them."""
        if self.node_set is None or world.view is None:
            return ""
        return compress([name for name, node in world.view.nodes.items() if self.node_set.has(name, node)])

    def brakes(self, world: World, kind: BrakeKind) -> list[Brake]:
        """Its own brakes of this kind, released ones too: that of its name, and those that tripped under a name which no set has any more
        for exactly these nodes. Who renames a set has not looked for the cause."""
        mine = world.book.brakes.get(at_set(kind.value, self.name))
        names, nodes = {each.name for each in world.policy.nodes}, self.nodes(world)
        others = (b for b in world.book.brakes.values() if b.kind is kind and b.node_set and b.node_set not in names)
        return [*([mine] if mine is not None else []), *(b for b in others if nodes and b.nodes == nodes)]


def scopes(world: World) -> tuple[BrakeScope, ...]:
    """The site first."""
    return (site(world), *(_of_set(each) for each in world.policy.nodes if each.brakes))


def site(world: World) -> BrakeScope:
    """The whole site. A share is one of the fleet."""
    brake, nodes = world.policy.brake, len(slurm_view.fleet(world))
    short = max(brake.drains_10min, math.floor(nodes * brake.drains_10min_share))
    long = max(brake.drains_60min, math.floor(nodes * brake.drains_60min_share))
    return BrakeScope(((BRAKE_SHORT_S, short), (BRAKE_LONG_S, long)), brake.stopped_jobs_60min)


def _of_set(each: NodeSet) -> BrakeScope:
    named = ((BRAKE_SHORT_S, "drains_10min"), (BRAKE_LONG_S, "drains_60min"))
    windows = tuple((window_s, each.brakes[key]) for window_s, key in named if key in each.brakes)
    return BrakeScope(windows, each.brakes.get("stopped_jobs_60min"), each)


def about(world: World, brakes: Iterable[Brake], nodes: Iterable[str]) -> list[Brake]:
    """Those of the brakes that hold what is about these nodes."""
    names = tuple(nodes)
    return [b for b in brakes if not b.node_set or any(_has(world, b, name) for name in names)]


def _has(world: World, brake: Brake, name: str) -> bool:
    """A set's brake holds the nodes that the set had when it tripped and those that it has now. It is released by an operator, never by a
    change of the settings."""
    if brake.had((name,)):
        return True
    shown = world.view.nodes.get(name) if world.view is not None else None
    return any(each.name == brake.node_set and each.has(name, shown) for each in world.policy.nodes)


def lost_set(world: World, brake: Brake) -> str:
    """What to say of a brake whose set is not in the settings any more; empty: it is, or it is the site's."""
    if not brake.node_set or any(each.name == brake.node_set for each in world.policy.nodes):
        return ""
    held = "every node" if brake.had_all else brake.nodes or "no node"
    return f"set {brake.node_set!r} is no longer in the settings: until it is released the brake holds {held}"
