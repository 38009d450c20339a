"""A node's history, health and sheet, and the worst nodes, as shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from holdfast.api.answers.node_shapes import OutageShape
from holdfast.api.deps import ApiDeps, ApiStore
from holdfast.api.errors import ApiError
from holdfast.api.shown.history import KINDS, SHARED, entries
from holdfast.api.shown.history_shapes import (
    AllHealthShape,
    Entry,
    FaultShape,
    GpuShape,
    HistoryEntryShape,
    LemonShape,
    LemonsShape,
    MachineShape,
    NodeHealthShape,
    NodeHistoryShape,
    NodeSheetShape,
    SheetIncidentShape,
)
from holdfast.api.shown.views import finding_shape, incident_shape
from holdfast.decisions.incidents import node_history
from holdfast.decisions.incidents.node_history import CountedFault
from holdfast.decisions.nodes.health import Health, NodeHealth, health_of, health_of_all
from holdfast.model.agents.report import NodeMachine
from holdfast.model.book import World
from holdfast.model.incidents.fleet import natural
from holdfast.model.incidents.incident import Incident
from holdfast.model.policies.policy import HistoryPolicy

_SHEET_INCIDENTS, _SHEET_FINDINGS, _SHEET_ENTRIES = 10, 50, 500


def health_shape(world: World, name: str) -> NodeHealthShape:
    """Raises ApiError 404."""
    found = health_of(world, name)
    if found is None:
        raise ApiError(404, "not_found", f"There is no node {name}; GET /v1/nodes lists them")
    return _health(name, found)


def all_health_shape(world: World) -> AllHealthShape:
    found = health_of_all(world)
    counts = Counter(each.health.value for each in found.values())
    return AllHealthShape(
        at=world.now,
        counts={word.value: counts[word.value] for word in Health},
        nodes=[_health(name, each) for name, each in found.items()],
    )


def _health(name: str, found: NodeHealth) -> NodeHealthShape:
    return NodeHealthShape(
        node=name,
        health=found.health,
        reason=found.reason,
        since=found.since,
        in_service=found.in_service,
        incident_id=found.incident_id,
    )


def history_shape(deps: ApiDeps, name: str, since: datetime | None, cursor: int | None, limit: int) -> NodeHistoryShape:
    """Raises ApiError 404 for a node of which nothing is on record."""
    events, older = deps.store.node_events(name, KINDS, SHARED, since=since, before_id=cursor, limit=limit)
    found, machines = entries(events, name), machine_shapes(deps, name)
    world = deps.world()
    shown = world is not None and world.view is not None and name in world.view.nodes
    if not found and not machines and not shown and cursor is None and since is None:
        raise ApiError(404, "not_found", f"Nothing is on record of a node {name}; GET /v1/nodes lists them")
    return NodeHistoryShape(
        node=name,
        recorded_since=world.book.nodes_since if world is not None else None,
        machines=machines,
        entries=found,
        next_cursor=older,
    )


def machine_shapes(deps: ApiDeps, name: str) -> list[MachineShape]:
    world = deps.world()
    record = world.book.nodes.get(name) if world is not None else None
    serving = record.instance_id if record is not None else ""
    return [_machine(m, serving) for m in deps.store.machines(name)]


def _machine(machine: NodeMachine, serving: str) -> MachineShape:
    gpus = [
        GpuShape(
            uuid=uuid,
            serial=str(known.get("serial") or ""),
            pci=str(known.get("pci") or ""),
            minor=minor if isinstance(minor := known.get("minor"), int) else None,
        )
        for uuid, known in machine.inventory.gpus.items()
    ]
    return MachineShape(
        instance_id=machine.instance_id,
        boot_id=machine.boot_id,
        serving=machine.instance_id == serving,
        reported_at=machine.reported_at,
        driver_version=machine.inventory.driver_version,
        gpus=sorted(gpus, key=lambda g: (g.minor is None, g.minor or 0, g.uuid)),
        detail=dict(machine.inventory.detail),
    )


def lemons_shape(world: World | None, now: datetime) -> LemonsShape:
    if world is None or world.background.read_at is None:
        return LemonsShape(history_read_at=None, rules=[], lemons=[])
    policy, known = world.policy, world.background
    serving = {n.name: n.instance_id for n in world.book.nodes.values()}
    faults = node_history.explained(known.outages, serving, policy.history, policy.repair.fresh_s, now)
    worst = sorted(known.lemons.items(), key=lambda item: (not item[1].holds(now), -item[1].score, natural(item[0])))
    shapes = [
        LemonShape(
            node=name,
            score=lemon.score,
            lemon=lemon.holds(now),
            until=lemon.until if lemon.holds(now) else None,
            reasons=list(lemon.reasons),
            faults=[_fault(f) for f in faults.get(name, ())],
        )
        for name, lemon in worst
    ]
    return LemonsShape(history_read_at=known.read_at, rules=_rules(policy.history), lemons=shapes)


def _fault(fault: CountedFault) -> FaultShape:
    shape = OutageShape.model_validate(fault.outage)
    return FaultShape(outage=shape, weight=fault.weight, until=fault.until, why=fault.why)


def _rules(policy: HistoryPolicy) -> list[str]:
    day_s = 86_400
    windows = ((policy.short_faults, policy.short_window_s), (policy.faults, policy.window_s))
    lasts = f"a lemon for {policy.lemon_s / day_s:g} days after the fault"
    return [f"{least} faults in {window_s / day_s:g} days make it {lasts}" for least, window_s in windows if least > 0]


def sheet_shape(deps: ApiDeps, name: str, incident_id: str | None) -> NodeSheetShape:
    """Raises ApiError 404 for a node of which nothing is on record, and for an incident of another node."""
    history = history_shape(deps, name, None, None, _SHEET_ENTRIES)
    world = deps.world()
    health = health_of(world, name) if world is not None else None
    told = history.entries
    return NodeSheetShape(
        node=name,
        made_at=deps.clock.now(),
        health=_health(name, health) if health is not None else None,
        machines=history.machines,
        incidents=[_sheet_incident(deps.store, i, told) for i in _sheet_incidents(deps.store, name, incident_id)],
        out=[e for e in told if e.about in (Entry.OUT, Entry.BACK)],
        tickets=list(dict.fromkeys(e.ticket for e in told if e.ticket)),
    )


def _sheet_incidents(store: ApiStore, name: str, incident_id: str | None) -> Sequence[Incident]:
    if incident_id is None:
        return store.incidents(node=name, limit=_SHEET_INCIDENTS)
    found = store.incident(incident_id)
    if found is None or found.node != name:
        raise ApiError(
            404, "not_found", f"Node {name} has no incident {incident_id}; GET /v1/incidents?node={name} lists them"
        )
    return (found,)


def _sheet_incident(store: ApiStore, incident: Incident, told: Sequence[HistoryEntryShape]) -> SheetIncidentShape:
    findings = store.findings(incident_id=incident.id, limit=_SHEET_FINDINGS)
    tried = [e for e in told if e.incident_id == incident.id and e.about in (Entry.STEP, Entry.MACHINE)]
    return SheetIncidentShape(
        incident=incident_shape(incident), findings=[finding_shape(f) for f in findings], tried=tried
    )
