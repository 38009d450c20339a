"""A look-alike of ParallelCluster's clustermgtd for tests: which nodes it replaces, when, and what it does with them.

Written from the facts of aws-parallelcluster-node 3.11 to 3.16 as ``docs/decisions/0006-held-by-reservation.md`` states them; not
ParallelCluster's code. Left out: partitions and protected mode, capacity blocks, back-off after a capacity error."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from holdfast.model.errors import OutsideError
from holdfast.model.slurm.cluster import Node

_LOG = logging.getLogger(__name__)

LOOP_S = 60.0
REPLACEMENT_S = 1800.0
"""node_replacement_timeout: how long a static node's new machine may take before it is replaced again."""
ORPHAN_S = 300.0
"""orphaned_instance_timeout."""
IMPAIRED_S = 180.0
"""health_check_timeout, also counted after slurmd's start."""
STATIC_REASON = "Static node maintenance: unhealthy node is being replaced"
DYNAMIC_REASON = "Scheduler health check failed"
IMPAIRED_REASON = "Node failing ec2_health_check"


@dataclass(frozen=True, slots=True)
class Backing:
    """A live instance of the cluster."""

    instance_id: str
    launched_at: datetime
    impaired_since: datetime | None = None


class Ground(Protocol):
    """Slurm and EC2 as clustermgtd handles them. An error ends the turn; the next one starts from the beginning."""

    def nodes(self) -> Mapping[str, Node]:
        """All nodes; ``address`` is the node's own name where none is set."""
        ...

    def backing(self) -> Mapping[str, Backing]:
        """Address → running instance."""
        ...

    def drain(self, node: str, reason: str) -> None: ...

    def set_down(self, node: str, reason: str) -> None:
        """Set the node DOWN, without DRAIN, and NodeAddr back to the node's name."""
        ...

    def force_power_down(self, node: str, reason: str) -> None:
        """POWER_DOWN_FORCE, and set NodeAddr back to the node's name."""
        ...

    def forget_address(self, node: str) -> None: ...

    def terminate(self, instance_id: str) -> None: ...

    def launch(self, node: str) -> bool:
        """Launch a new instance for a static node and set its address as NodeAddr; False: no capacity."""
        ...


def is_static(node: str) -> bool:
    """``queue-st-resource-1``; dynamic ones have ``-dy-``."""
    return "-dy-" not in node


def is_down(node: Node) -> bool:
    asked = "POWER_DOWN" in node.flags and "POWERED_DOWN" not in node.flags
    return node.down and "POWERING_DOWN" not in node.flags and not asked


def is_drained(node: Node) -> bool:
    """Whether the node is drained and idle: a drained node with a job is not."""
    return node.draining and not node.completing and (node.base_state == "IDLE" or is_down(node))


def is_up(node: Node) -> bool:
    return not node.draining and not is_down(node) and "POWERING_DOWN" not in node.flags


def in_maintenance(node: Node) -> bool:
    return {"MAINTENANCE", "RESERVED"} <= node.flags


def healthy(node: Node, backed: bool, replacing: bool) -> bool:
    """Whether a turn leaves the node alone. ``replacing``: its new machine is within its time limit. No reservation counts."""
    if node.address == node.name:
        if is_static(node.name):
            return False
    elif not backed:
        return False
    if node.rebooting:
        return True
    if is_drained(node) and "POWER_DOWN" not in node.flags:
        return replacing and is_static(node.name)
    return not is_down(node) or (replacing and is_static(node.name))


class ClusterManager:
    """One clustermgtd. :meth:`step` may be called at any rate; a turn is made every ``LOOP_S``."""

    def __init__(
        self, ground: Ground, now: Callable[[], datetime], monotonic: Callable[[], float], *, before_3_16: bool = False
    ) -> None:
        """``before_3_16``: a node in a maintenance reservation has no time for its replacement (aws-parallelcluster#7470)."""
        self._ground = ground
        self._now = now
        self._monotonic = monotonic
        self._before_3_16 = before_3_16
        self._next_s = monotonic()
        self.replacing: set[str] = set()
        """Static nodes whose new machine has not come up yet."""
        self.terminated: list[tuple[str, str]] = []
        """Node (empty: an orphan) and instance, in order."""

    def step(self) -> None:
        """Make a turn if one is due. An error of Slurm or EC2 ends it."""
        if self._monotonic() >= self._next_s:
            self._next_s = self._monotonic() + LOOP_S
            try:
                self.turn()
            except OutsideError as error:
                _LOG.info("event=turn_ended error=%s", error)

    def turn(self) -> None:
        nodes, backing = self._ground.nodes(), self._ground.backing()
        self._drain_impaired(nodes, backing)
        nodes = self._ground.nodes()
        self.replacing = {n for n in self.replacing if n in nodes and self._still_replaced(nodes[n])}
        protected = {n for n in self.replacing if self._protected(nodes[n], backing)}
        for node in nodes.values():
            if node.address != node.name and node.flags & {"POWERING_DOWN", "POWERED_DOWN"}:
                if node.name not in protected:
                    self._ground.forget_address(node.name)
                    self._terminate(node, backing)
            elif not healthy(node, node.address in backing, node.name in protected):
                self._exchange(node, backing)
        self._end_orphans(nodes, backing)

    def _drain_impaired(self, nodes: Mapping[str, Node], backing: Mapping[str, Backing]) -> None:
        for node in nodes.values():
            found = backing.get(node.address)
            since = found.impaired_since if found is not None else None
            if since is None or self._age_s(since) < IMPAIRED_S or node.rebooting:
                continue
            if node.slurmd_start_time is None or self._age_s(node.slurmd_start_time) >= IMPAIRED_S:
                self._ground.drain(node.name, IMPAIRED_REASON)

    def _still_replaced(self, node: Node) -> bool:
        return not is_up(node) and not (self._before_3_16 and in_maintenance(node))

    def _protected(self, node: Node, backing: Mapping[str, Backing]) -> bool:
        found = backing.get(node.address)
        return found is not None and self._age_s(found.launched_at) < REPLACEMENT_S

    def _exchange(self, node: Node, backing: Mapping[str, Backing]) -> None:
        if is_static(node.name):
            self._ground.set_down(node.name, STATIC_REASON)
            self._terminate(node, backing)
            if self._ground.launch(node.name):
                self.replacing.add(node.name)
        elif not node.flags & {"POWERING_DOWN", "POWERED_DOWN"} or node.down:
            self._terminate(node, backing)
            self._ground.force_power_down(node.name, DYNAMIC_REASON)

    def _terminate(self, node: Node, backing: Mapping[str, Backing]) -> None:
        found = backing.get(node.address)
        if found is not None:
            self._ground.terminate(found.instance_id)
            self.terminated.append((node.name, found.instance_id))

    def _end_orphans(self, nodes: Mapping[str, Node], backing: Mapping[str, Backing]) -> None:
        known = {node.address for node in nodes.values()}
        for address, found in backing.items():
            if address not in known and self._age_s(found.launched_at) >= ORPHAN_S:
                self._ground.terminate(found.instance_id)
                self.terminated.append(("", found.instance_id))

    def _age_s(self, since: datetime) -> float:
        return (self._now() - since).total_seconds()
