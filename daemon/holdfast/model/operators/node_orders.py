"""Operators' orders to drain a node, to release it, or to replace its machine. Standard library only.

Holdfast carries them out in Slurm and treats the drain like one that the operator set with scontrol: it never takes it back on its own.
An order to replace becomes an incident, or directs the one that is open: that is what survives the order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from holdfast.model.errors import Rejected
from holdfast.model.slurm.cluster import NodeReason
from holdfast.model.target import OnNode
from holdfast_checks.words import unknown_reads_as

EXPIRES = timedelta(minutes=10)
"""An order that was not carried out by then is dropped: the operator has looked elsewhere. Shorter than settled steps are remembered, so
that none is carried out twice."""
KEPT = timedelta(hours=1)
MOST = 1000
"""Orders that are kept at a time."""
MOST_REASON = 200
"""Characters of a node's reason: Slurm's commands show no more in one line."""
_SIGNATURE = "operator {by}: "


@unknown_reads_as(None, "the order is dropped: its node stays as it is")
class OrderVerb(StrEnum):
    DRAIN = "drain"
    RELEASE = "release"
    REPLACE = "replace"
    """The node's machine, by the repair ladder."""


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """One order."""

    id: str
    node: str
    verb: OrderVerb
    at: datetime
    by: str
    """Name of the operator's token."""
    reason: str
    ticket: str = ""
    over: NodeReason | None = None
    """What Slurm showed as the node's reason. Of a release: another one is another drain, which stays. Of a replacement: the operator's
    drain that Holdfast takes over; None: it takes over none."""
    instance_id: str = ""
    """Of a replacement: the machine that the operator saw. The order is about no other."""
    gpus: frozenset[str] = frozenset()
    """Of a replacement: UUIDs of that machine's GPUs, as known when the order was given; empty: not known."""

    @property
    def slurm_reason(self) -> str:
        """Reason of the drained node: who ordered it, why, and the ticket.

        It starts with the operator, so it neither reads like one of Holdfast's or of Slurm's own, nor starts with ``Action:``, which
        HyperPod obeys."""
        signature, ticket = _SIGNATURE.format(by=self.by), f" [ticket {self.ticket}]" if self.ticket else ""
        room = max(0, MOST_REASON - len(signature) - len(ticket))
        return plain(signature + self.reason[:room].rstrip() + ticket)[:MOST_REASON]

    def due(self, now: datetime) -> bool:
        return now - self.at < EXPIRES

    @property
    def who_and_why(self) -> str:
        return _who_and_why(self)

    @property
    def for_machine(self) -> MachineOrder:
        """What an incident keeps of an order to replace."""
        return MachineOrder(
            self.id, self.node, self.at, self.by, self.reason, self.ticket, self.over, self.instance_id, self.gpus
        )


@dataclass(frozen=True, slots=True)
class MachineOrder:
    """An order to replace, as the incident keeps it that carries it out; the fields are those of :class:`NodeOrder`."""

    id: str
    node: str
    at: datetime
    by: str
    reason: str
    ticket: str
    over: NodeReason | None
    instance_id: str
    gpus: frozenset[str] = frozenset()

    @property
    def who_and_why(self) -> str:
        return _who_and_why(self)


def _who_and_why(order: NodeOrder | MachineOrder) -> str:
    """``ops: swap the board (ticket OPS-12)``, for people."""
    why = f"{order.by}: {order.reason}" if order.reason else order.by
    return why + (f" (ticket {order.ticket})" if order.ticket else "")


def plain(text: str) -> str:
    """One line without the characters that Slurm's one-line output could be misread by."""
    return " ".join(re.sub(r"[\x00-\x1f\x7f\"'=\\\\]+", " ", text).split())


@dataclass(frozen=True, slots=True)
class NodeOrders:
    """All that are remembered, as they are stored."""

    orders: tuple[NodeOrder, ...] = ()

    def at(self, now: datetime) -> NodeOrders:
        """Without those of long ago."""
        return NodeOrders(tuple(o for o in self.orders if now - o.at < KEPT))

    def given(self, order: NodeOrder) -> NodeOrders:
        """With this one. Raises Rejected where too many were given within the hour."""
        if len(self.orders) >= MOST:
            raise Rejected(
                f"{MOST} orders to drain, release or replace nodes were given within the hour: wait, or use scontrol"
            )
        return NodeOrders((*self.orders, order))


def order_of(orders: Iterable[NodeOrder], node: str, reason: str) -> NodeOrder | None:
    """The newest order to drain this node with this reason; None: there is none."""
    drains = (o for o in orders if o.node == node and o.verb is OrderVerb.DRAIN)
    mine = [o for o in drains if o.slurm_reason == reason]  # rule prose: Slurm keeps no other sign of who set a drain
    return mine[-1] if mine else None


@dataclass(frozen=True, slots=True)
class DrainForOperator(OnNode):
    """Drain the node for the operator who ordered it: the drain is theirs, and jobs on the node continue."""

    node: str
    reason: str
    """:attr:`NodeOrder.slurm_reason`."""


@dataclass(frozen=True, slots=True)
class ReleaseForOperator(OnNode):
    """Put the node back for the operator who ordered it; only while its reason, user and time are those that they saw."""

    node: str
    over: NodeReason
