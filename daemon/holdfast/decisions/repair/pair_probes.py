"""Pair probes: which pairs of nodes are probed now. Pure.

The nodes of a job that failed without a finding, and machines under validation where more than one is at a time. A probe takes seconds and
blocks no job: nothing is drained for it, and a node that has got a job meanwhile reports so and counts as not asked."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.decisions.common import node_agents, slurm_view
from holdfast.decisions.common.part import Part
from holdfast.decisions.probing import probe_orders, suspects
from holdfast.decisions.probing.pairs import Probe, ProbeOutcome, next_pairs
from holdfast.decisions.repair import validation, validation_orders
from holdfast.model.actions import steps
from holdfast.model.actions.action import Intent, Notify, Proposal, SendOrder
from holdfast.model.actions.steps import Step
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.notice import NoticeLevel, Topic
from holdfast.model.slurm.cluster import ClusterView


def probe(world: World) -> Part:
    view = slurm_view.fresh_view(world)
    if view is None:
        return Part()
    inquiries = suspects.inquiries(world) if world.policy.suspects.probe else []
    validating = world.policy.repair.pair_probe and any(
        i.state is IncidentState.VALIDATING and i.validated_at is None for i in world.book.open_incidents()
    )
    if not inquiries and not validating:
        return Part()
    plan = _Plan(world, view)
    for incident in inquiries:
        plan.inquire(incident)
    if validating:
        plan.validate()
    return Part(tuple(plan.proposals))


class _Plan:
    """Collects the probes of one cycle; a node is in one at a time, and the number for the cluster is limited."""

    def __init__(self, world: World, view: ClusterView) -> None:
        self.world = world
        self.view = view
        self.orders = probe_orders.all_orders(world)
        self.proposals: list[Proposal] = []
        self._taken = set(probe_orders.busy(self.orders))
        self._room = probe_orders.room(world, self.orders)

    def inquire(self, incident: Incident) -> None:
        """The nodes of a job that failed or hung."""
        inquiry = suspects.read(self.world, incident, self.orders)
        if inquiry.one_cause:
            self.proposals += _tell(self.world, incident, steps.notify_one_cause(), incident.note)
            return
        if (text := suspects.cannot_tell(self.world, self.view, incident, inquiry)) is not None:
            self.proposals += _tell(self.world, incident, steps.notify_cannot_tell(), text)
            return
        idle = [
            n for n in incident.suspects if not self.view.jobs_on(n) and probe_orders.idle(self.world, self.view, n)
        ]
        for pair in self._pairs(incident.suspects, inquiry.probes, idle):
            reason = f"{incident.headline}: is one of {pair[0]} and {pair[1]} at fault?"
            self._order(incident, pair, reason)

    def validate(self) -> None:
        """Machines that are validated at the same time, and those that the network was the fault of."""
        group = validation_orders.group(self.world, self.orders)
        mine = {i.node: i for i in group.incidents if validation_orders.needed(i, group)}
        beside = {
            n: validation.candidate(self.world, i) for n, i in mine.items() if validation_orders.beside(self.world, i)
        }
        ready = [n for n in mine if self._ready(n, beside.get(n))]
        for pair in self._pairs(tuple(mine), group.probes, ready, tuple(beside)):
            incident = mine.get(pair[0]) or mine.get(pair[1]) or _waits_for(pair, mine, group.probes)
            self._order(incident, pair, f"{pair[0]} and {pair[1]} must carry data unchanged before they serve", beside)

    def _ready(self, node: str, instance: str | None) -> bool:
        if instance is not None:
            return node_agents.agent_of(self.world, node, instance) is not None
        return not self.view.jobs_on(node) and probe_orders.idle(self.world, self.view, node, serving=False)

    def _pairs(
        self,
        nodes: tuple[str, ...],
        probes: tuple[Probe, ...],
        idle: list[str],
        connect_only: tuple[str, ...] = (),
    ) -> list[tuple[str, str]]:
        if self._room <= 0 or not idle:
            return []
        trusted = [n for n in probe_orders.trusted(self.world, self.view, nodes) if n not in self._taken]
        free = {n for n in (*idle, *trusted) if n not in self._taken}
        running = sum(p.outcome is ProbeOutcome.RUNNING for p in probes)
        most = self._room + running
        return next_pairs(nodes, trusted, probes, free=free, most=most, connect_only=connect_only)

    def _order(
        self, incident: Incident, pair: tuple[str, str], reason: str, beside: Mapping[str, str] | None = None
    ) -> None:
        planned = sum(p.incident_id == incident.id and isinstance(p.action, SendOrder) for p in self.proposals) // 2
        tag = str(_next_number(incident, self.orders) + planned)
        orders = probe_orders.orders_for(
            self.world, self.view, incident.id, pair, tag=tag, reason=reason, instances=dict(beside or {})
        )
        self.proposals += orders
        if orders:
            self._taken.update(pair)
            self._room -= 1


def _waits_for(pair: tuple[str, str], mine: Mapping[str, Incident], probes: tuple[Probe, ...]) -> Incident:
    """The first whose verdict waits for a probe of two partners: it failed with one of them."""
    failed = {n for p in probes if p.outcome is ProbeOutcome.BAD and set(p.nodes) & set(pair) for n in p.nodes}
    return next(incident for node, incident in sorted(mine.items()) if node in failed)


def _next_number(incident: Incident, orders: list[Intent]) -> int:
    mine = (order for order in orders if order.incident_id == incident.id)
    return 1 + max((int(probe_orders.name_of(order)) for order in mine), default=0)


def _tell(world: World, incident: Incident, step: Step, text: str) -> list[Proposal]:
    if not world.may_try(incident.id, step):
        return []
    nodes = ",".join(incident.suspects)
    body = f"{incident.headline}\n{text}\nnodes: {nodes}"
    return [
        Proposal(
            incident.id,
            step,
            Notify(f"{incident.headline}", body, NoticeLevel.NEEDS_SOMEBODY, Topic.FAILED_JOBS, incident.suspects),
            text,
            order=90,
        )
    ]
