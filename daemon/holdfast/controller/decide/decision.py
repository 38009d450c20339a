"""The decision of one cycle, put together from its parts. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.controller.decide import (
    allow,
    contain,
    dead,
    disputes,
    elastic,
    ending,
    file_systems,
    frozen,
    hangs,
    held,
    maintain,
    orphans,
    outputs,
    page,
    probe,
    recover,
    refill,
    repair,
    stays_down,
    stragglers,
    tidy,
    upkeep,
)
from holdfast.model.action import Proposal
from holdfast.model.book import World
from holdfast.model.event import Event
from holdfast.model.incident import Incident, Recovery


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done, and what the book shall say about it."""

    proposals: tuple[Proposal, ...] = ()
    incidents: tuple[Incident, ...] = ()
    """Changed and new ones."""
    recoveries: tuple[Recovery, ...] = ()
    """Changed and new ones."""
    events: tuple[Event, ...] = ()


def decide(world: World) -> Decision:
    """Everything that calls for a step now, most urgent first: nodes out of service, jobs back to work, then repairs."""
    parts = [
        maintain.keep_windows(world),
        contain.contain(world),
        outputs.read_outputs(world),
        recover.recover(world),
        hangs.look_into_hangs(world),
        held.tell_of_held_jobs(world),
        stragglers.let_slow_groups_leave(world),
        ending.warn_of_ends(world),
        disputes.tell_of_disputes(world),
        frozen.tell_of_freeze(world),
        file_systems.tell_of_file_systems(world),
        allow.allow(world),
        dead.ask_witnesses(world),
        page.page(world),
        stays_down.tell_of_nodes_down(world),
        repair.repair(world),
        probe.probe(world),
        tidy.tidy(world),
        orphans.orphans(world),
        refill.keep_pool(world),
        elastic.resize(world),
        upkeep.check_spares(world),
    ]
    once = {(p.incident_id, p.step): p for part in reversed(parts) for p in reversed(part.proposals)}
    return Decision(
        tuple(p for part in parts for p in part.proposals if once[p.incident_id, p.step] is p),
        recoveries=tuple(r for part in parts for r in part.recoveries),
    )
