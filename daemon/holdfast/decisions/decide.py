"""Decision of one cycle, assembled from its parts. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.decisions.elastic import resize
from holdfast.decisions.hangs import respond, slow_groups
from holdfast.decisions.incidents import file_systems
from holdfast.decisions.job_ends import read_output
from holdfast.decisions.machines import dispute_notices, orphans
from holdfast.decisions.nodes import maintenance_windows, node_orders, stays_down_notices
from holdfast.decisions.planned import ending
from holdfast.decisions.recovery import held_notices, recover
from holdfast.decisions.repair import cleanup, drain, order_waits, pair_probes, readmit, repair, replace_orders
from holdfast.decisions.silence import ask_witnesses, frozen_notices, silence_notices
from holdfast.decisions.spares import order_spare_checks, refill
from holdfast.model.actions.action import Proposal
from holdfast.model.book import World
from holdfast.model.event import Event
from holdfast.model.incidents.incident import Incident, Recovery


@dataclass(frozen=True, slots=True)
class Decision:
    """Proposed actions, and the changes to the state that go with them."""

    proposals: tuple[Proposal, ...] = ()
    incidents: tuple[Incident, ...] = ()
    """Changed and new ones."""
    recoveries: tuple[Recovery, ...] = ()
    """Changed and new ones."""
    events: tuple[Event, ...] = ()


def decide(world: World) -> Decision:
    """Everything that calls for a step now, most urgent first: nodes out of service, jobs back to work, then repairs."""
    parts = [
        maintenance_windows.keep_windows(world),
        node_orders.carry_out_orders(world),
        replace_orders.tell_of_dropped_orders(world),
        order_waits.tell_of_waiting_orders(world),
        drain.contain(world),
        read_output.read_outputs(world),
        recover.recover(world),
        respond.look_into_hangs(world),
        held_notices.tell_of_held_jobs(world),
        slow_groups.let_slow_groups_leave(world),
        ending.warn_of_ends(world),
        dispute_notices.tell_of_disputes(world),
        frozen_notices.tell_of_freeze(world),
        file_systems.tell_of_file_systems(world),
        readmit.allow(world),
        ask_witnesses.ask_witnesses(world),
        silence_notices.page(world),
        stays_down_notices.tell_of_nodes_down(world),
        repair.repair(world),
        pair_probes.probe(world),
        cleanup.tidy(world),
        orphans.orphans(world),
        refill.keep_pool(world),
        resize.resize(world),
        order_spare_checks.check_spares(world),
    ]
    once = {(p.incident_id, p.step): p for part in reversed(parts) for p in reversed(part.proposals)}
    return Decision(
        tuple(p for part in parts for p in part.proposals if once[p.incident_id, p.step] is p),
        recoveries=tuple(r for part in parts for r in part.recoveries),
        events=tuple(e for part in parts for e in part.events),
    )
