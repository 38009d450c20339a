"""Which pairs of nodes are probed now? Pure.

The nodes of a job that failed without a finding, and machines under validation where more than one is at a time. A probe takes seconds and
holds nobody: nothing is drained for it, and a node that a job has meanwhile says so and counts as not asked."""

from __future__ import annotations

from holdfast.controller import facts, probing, suspects
from holdfast.controller.decide.part import Part
from holdfast.controller.pairs import Outcome, next_pairs
from holdfast.model.action import Intent, Notify, Proposal
from holdfast.model.book import World
from holdfast.model.cluster import ClusterView
from holdfast.model.incident import Incident


def probe(world: World) -> Part:
    view = facts.fresh_view(world)
    if view is None:
        return Part()
    proposals: list[Proposal] = []
    inquiries = suspects.inquiries(world) if world.policy.suspects.probe else []
    if inquiries:
        proposals += _inquire(world, view, inquiries)
    return Part(tuple(proposals))


def _inquire(world: World, view: ClusterView, inquiries: list[Incident]) -> list[Proposal]:
    orders = probing.all_orders(world)
    taken = set(probing.busy(orders))
    room = probing.room(world, view, orders)
    proposals: list[Proposal] = []
    for incident in inquiries:
        if incident.check == suspects.HUNG:
            proposals += _tell(world, incident, "hangs", incident.headline)
            continue
        inquiry = suspects.read(world, incident, orders)
        if inquiry.one_cause:
            proposals += _tell(world, incident, "one_cause", incident.note)
            continue
        pairs = _pairs(world, view, incident, inquiry, taken, room)
        first = _next_number(incident, orders)
        for number, pair in enumerate(pairs, first):
            reason = f"{incident.headline.partition(': ')[2]}: is one of {pair[0]} and {pair[1]} at fault?"
            proposals += probing.orders_for(world, view, incident.id, pair, tag=str(number), reason=reason)
            taken.update(pair)
            room -= 1
    return proposals


def _pairs(
    world: World, view: ClusterView, incident: Incident, inquiry: suspects.Inquiry, taken: set[str], room: int
) -> list[tuple[str, str]]:
    if room <= 0:
        return []
    trusted = [n for n in probing.trusted(world, view, incident.suspects) if n not in taken]
    members = [n for n in incident.suspects if n not in taken and _to_be_asked(world, view, n)]
    running = sum(p.outcome is Outcome.RUNNING for p in inquiry.probes)
    return next_pairs(incident.suspects, trusted, inquiry.probes, free={*members, *trusted}, most=room + running)


def _to_be_asked(world: World, view: ClusterView, node: str) -> bool:
    return not view.jobs_on(node) and probing.idle(world, view, node)


def _next_number(incident: Incident, orders: list[Intent]) -> int:
    mine = {order.key.rsplit("/", 1)[0].rpartition(".")[2] for order in orders if order.incident_id == incident.id}
    return 1 + max((int(number) for number in mine), default=0)


def _tell(world: World, incident: Incident, step: str, text: str) -> list[Proposal]:
    if not facts.may_try(world, world.book.attempts(incident.id, f"Notify/{step}")):
        return []
    nodes = ",".join(incident.suspects)
    body = f"{incident.headline}\n{text}\nnodes: {nodes}\nholdfast incident show {incident.id}"
    return [Proposal(incident.id, f"Notify/{step}", Notify(f"{incident.headline}", body), text, order=90)]
