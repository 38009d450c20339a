"""Which spare takes the place of a bad node? Pure."""

from __future__ import annotations

from holdfast.controller import facts
from holdfast.model.book import World
from holdfast.model.cluster import ClusterView, Job, Node


def spare_pool(world: World, view: ClusterView) -> tuple[str, ...]:
    """Nodes in the reservation that Holdfast owns, in the order of their names."""
    reservation = view.reservations.get(world.policy.spare_reservation)
    return tuple(sorted(reservation.nodes)) if reservation is not None else ()


def choose_spare(world: World, view: ClusterView, job: Job, *, taken: frozenset[str]) -> str | None:
    """A ready spare of the job's partition with no fewer GPUs than its nodes had; None: there is none.

    Ready: idle and in service, no open incident, its agent heard. A spare whose agent is silent is unknown, not ready; one whose
    agent has not had the time to be heard since this controller started is what it was before."""
    promised = taken | {r.spare for r in world.book.recoveries.values() if r.spare is not None and not r.final}
    wanted_gpus = max((len(m) for m in job.gpu_minors.values()), default=0)
    for name in spare_pool(world, view):
        node = view.nodes.get(name)
        if node is None or name in promised or name in job.excluded_nodes:
            continue
        if _ready(world, view, node) and job.partition in node.partitions and node.gpu_count >= wanted_gpus:
            return name
    return None


def _ready(world: World, view: ClusterView, node: Node) -> bool:
    if node.out_of_service or not node.responding or node.base_state != "IDLE" or view.jobs_on(node.name):
        return False
    if any(facts.acting(i) for i in world.book.open_on(node.name)):
        return False
    return facts.agent_of(world, node.name) is not None or _heard_before(world, node.name)


def _heard_before(world: World, name: str) -> bool:
    """While the controller has just started: known to the store, nothing open on it (not even a suspicion), not heard yet.

    Waiting for its first heartbeat would hold the job back by up to an interval, for a spare that Slurm hears."""
    if world.frozen is None or world.agents.get(name) or world.book.open_on(name):
        return False
    record = world.book.nodes.get(name)
    return record is not None and bool(record.boot_id)
