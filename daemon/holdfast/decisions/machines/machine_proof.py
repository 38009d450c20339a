"""Proof that a machine is the node's, in front of every provider step that ends, stops, reboots, exchanges or renames one. Pure.

A node's own agent reports its machine, and an agent may lie. So right before each step the provider is asked (by id and by node), Slurm is
asked for the nodes' addresses, and the store for other nodes that claim the id. All must name this node. The actor's steps take a
:class:`ProvenMachine`, which only this module makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from holdfast.model.actions.action import Launch
from holdfast.model.machine import Instance
from holdfast_checks.words import known, unknown_reads_as

GONE = frozenset({"shutting-down", "terminated"})
"""States of a machine that is off, or certain to be."""
DOUBT, OTHER_NODE = "doubt", "other_node"
"""Fields of a refused step's result: the value of :class:`OwnershipDoubt`, and the node that the machine may belong to."""


@unknown_reads_as(None, "the step is still refused; it opens no incident")
class OwnershipDoubt(StrEnum):
    """Reason why a machine is not proved to be the node's."""

    NO_ID = "no_id"
    """Nothing says which machine the node has."""
    UNKNOWN = "unknown"
    """The provider no longer knows a machine with that id, nor another one of the node."""
    UNNAMED = "unnamed"
    """The provider does not say whose machine it is."""
    SERVED_BY_ANOTHER = "served_by_another"
    """The provider shows another machine as the node's."""
    ELSEWHERE = "elsewhere"
    """The provider shows the machine as another node's."""
    ADDRESS = "address"
    """Slurm reaches another node at its address."""
    CLAIMED = "claimed"
    """Another node's agent reports the same machine, or the store has it as another node's."""


DISPUTES = frozenset({OwnershipDoubt.ELSEWHERE, OwnershipDoubt.ADDRESS, OwnershipDoubt.CLAIMED})
"""Doubts that name a second node: a separate incident, and no repair for either node."""


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """Facts about the machine, read right before the step."""

    node: str
    instance_id: str
    shown: Instance | None = None
    """The machine of that id as the provider shows it; None: it knows none."""
    serving: Instance | None = None
    """The machine that serves the node by the provider's own record; None: it names none."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Node → NodeAddr: of this node, and of all others where the machine has another address."""
    claimed_by: frozenset[str] = frozenset()
    """Nodes of Slurm whose machine it is by the store: by their record, or by an open incident."""


@dataclass(frozen=True, slots=True)
class ProvenMachine:
    """The node's machine: what a step may be done to."""

    node: str
    instance_id: str
    serves: bool = True
    """False: launched for the node and on trial, or gone."""
    incident: str = ""
    """Incident whose replacement it is, from the provider's tags."""


@dataclass(frozen=True, slots=True)
class UnprovenMachine:
    """Not shown to be the node's machine: nothing is done to it."""

    doubt: OwnershipDoubt
    text: str
    """One line, for people."""
    other: str = ""
    """The node whose machine it may be."""
    passes: bool = False
    """The provider's record may catch up: ask again later."""


def prove_serving(facts: MachineFacts) -> ProvenMachine | UnprovenMachine:
    """For a reboot, a stop and start, and a report to the provider: the machine that serves the node now."""
    return _contradiction(facts) or _serving(facts)


def prove_expendable(facts: MachineFacts, *, fence: bool) -> ProvenMachine | UnprovenMachine:
    """For a termination: the node's machine, or one launched for it that serves nothing, or one that is gone already.

    ``fence``: the outcome will be taken as proof that the node is off, so a machine that is gone must have been this node's."""
    node, shown = facts.node, facts.shown
    if not fence and (shown is None or (shown.state in GONE and facts.instance_id)):
        incident = shown.incident if shown is not None else ""
        return ProvenMachine(node, facts.instance_id, serves=_serves(facts), incident=incident)
    doubt = _contradiction(facts)
    if doubt is not None:
        return doubt
    if shown is None:
        return _unknown(facts)
    if fence and facts.serving is not None and facts.serving.instance_id != facts.instance_id:
        return _served_by_another(facts, facts.serving)
    if shown.node != node and not _serves(facts):
        return _unnamed(facts)
    return ProvenMachine(node, facts.instance_id, serves=_serves(facts), incident=shown.incident)


def prove_successor(facts: MachineFacts, incident: str) -> ProvenMachine | UnprovenMachine:
    """For handing over the node's name: a live machine launched for this node, while no other live machine has the name."""
    doubt, shown = _contradiction(facts), facts.shown
    if doubt is not None:
        return doubt
    if shown is None:
        return _unknown(facts)
    if facts.serving is not None and facts.serving.instance_id != facts.instance_id:
        return replace(_served_by_another(facts, facts.serving), passes=True)  # the one that was ended a moment ago
    if not _serves(facts) and shown.node != facts.node and shown.incident != incident:
        return _unnamed(facts)
    return ProvenMachine(facts.node, facts.instance_id, serves=_serves(facts), incident=shown.incident)


def prove_not_exchanged(action: Launch, serving: Instance | None) -> UnprovenMachine | None:
    """Check before a launch in addition to a node's machine that no one has replaced that machine meanwhile; a new one may take a while to
    report. None: no one has."""
    if serving is None or action.instead_of in ("", serving.instance_id):
        return None
    shown = MachineFacts(action.node, action.instead_of, serving=serving)
    return _served_by_another(shown, serving)


def prove_exchangeable(facts: MachineFacts) -> ProvenMachine | UnprovenMachine:
    """Proof for a replacement in place. For a machine that is gone, or that the provider assigns to no node while the node has none, the
    provider itself reports what became of it: :meth:`~holdfast.ports.Provider.replace` proves the rest."""
    doubt, shown, serving = _contradiction(facts), facts.shown, facts.serving
    if doubt is not None:
        return doubt
    if shown is None or shown.state in GONE or (serving is None and not shown.node):
        return ProvenMachine(facts.node, facts.instance_id, serves=False)
    return _serving(facts)


def disputed_node(result: Mapping[str, object]) -> str | None:
    """The second node that a refused step's result names; None: its machine was not in dispute."""
    doubt = known(OwnershipDoubt, result.get(DOUBT))
    return str(result.get(OTHER_NODE) or "") if doubt in DISPUTES else None


def refused_unproven(result: Mapping[str, object]) -> bool:
    """Whether a refused step was refused since its machine was not proved to be the node's."""
    return DOUBT in result


def shared_address(node: str, places: Mapping[str, tuple[str, int]]) -> str | None:
    """Another node that Slurm reaches at the same address and port: an order by the node's name may reach its machine. ``places``: node →
    (NodeAddr, port). Nodes without an address share none."""
    mine = places.get(node, ("", 0))
    return next((other for other, place in sorted(places.items()) if mine[0] and other != node and place == mine), None)


def _contradiction(facts: MachineFacts) -> UnprovenMachine | None:
    """Contradiction: evidence for another node, or no machine to prove."""
    node, machine, shown = facts.node, facts.instance_id, facts.shown
    if not machine:
        return UnprovenMachine(OwnershipDoubt.NO_ID, f"nothing says which machine {node} has: left alone")
    if shown is not None and shown.node not in ("", node):
        return UnprovenMachine(
            OwnershipDoubt.ELSEWHERE, f"{machine} is {shown.node}'s machine, not {node}'s: left alone", other=shown.node
        )
    others = sorted(facts.claimed_by - {node})
    if others and not _named_by_the_provider(facts):
        text = f"{machine} is claimed by {', '.join(others)} as well as by {node}: left alone"
        return UnprovenMachine(OwnershipDoubt.CLAIMED, text, other=others[0])
    at = shown.address if shown is not None and shown.state not in GONE else ""
    if at and facts.addresses.get(node) != at:
        there = next((name for name, address in sorted(facts.addresses.items()) if address == at), None)
        if there is not None:
            text = f"{machine} has the address {at}, at which Slurm reaches {there} and not {node}: left alone"
            return UnprovenMachine(OwnershipDoubt.ADDRESS, text, other=there)
    return None


def _named_by_the_provider(facts: MachineFacts) -> bool:
    """The provider names the node for the machine, asked by its id, and no other machine for the node: a claim does not outweigh that."""
    named = facts.shown is not None and facts.shown.node == facts.node
    return named and (facts.serving is None or _serves(facts))


def _serving(facts: MachineFacts) -> ProvenMachine | UnprovenMachine:
    if facts.serving is not None and not _serves(facts):
        both = facts.shown is not None and facts.shown.node == facts.node  # a name that was handed over a moment ago
        return replace(_served_by_another(facts, facts.serving), passes=both)
    if facts.shown is None or facts.shown.state in GONE:
        return _unknown(facts)
    if facts.serving is None:
        return _unnamed(facts)
    return ProvenMachine(facts.node, facts.instance_id, incident=facts.shown.incident)


def _serves(facts: MachineFacts) -> bool:
    return facts.serving is not None and facts.serving.instance_id == facts.instance_id


def _unknown(facts: MachineFacts) -> UnprovenMachine:
    how = (
        f"shows {facts.instance_id} {facts.shown.state}" if facts.shown is not None else f"knows no {facts.instance_id}"
    )
    text = f"the provider {how}, and no other machine as {facts.node}'s"
    return UnprovenMachine(OwnershipDoubt.UNKNOWN, text)


def _unnamed(facts: MachineFacts) -> UnprovenMachine:
    """Doubt about a machine that is retired, on trial, or starting: one that has the node's name may serve it again in a moment."""
    named = facts.shown is not None and facts.shown.node == facts.node
    text = f"{facts.instance_id} belongs to no node by the provider's record, not to {facts.node}: left alone"
    if named:
        text = f"the provider does not show {facts.instance_id} as the machine that serves {facts.node} now"
    return UnprovenMachine(OwnershipDoubt.UNNAMED, text, passes=named)


def _served_by_another(facts: MachineFacts, serving: Instance) -> UnprovenMachine:
    text = f"the provider shows {serving.instance_id} as {facts.node}'s machine, not {facts.instance_id}: left alone"
    return UnprovenMachine(OwnershipDoubt.SERVED_BY_ANOTHER, text)
