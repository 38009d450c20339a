"""Results of ordered checks on nodes without an incident: spares. Pure.

Such orders belong to no incident; they are recorded under the name ``upkeep``, which no incident has. The node's record keeps when it was
checked and what was wrong. A fault that such a check finds opens an incident, as any finding would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime

from holdfast.decisions.common import node_incidents
from holdfast.model.actions.action import Intent, IntentState, SendOrder, Verb
from holdfast.model.agents.report import results_of
from holdfast.model.book import Change, NodeRecord, World
from holdfast.model.event import Event
from holdfast.model.ids import UPKEEP
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState
from holdfast.model.incidents.transitions import Detection, Moved, NewIncident, open_incident
from holdfast_checks.result import NODE_COMPONENT, Grade, Remedy, Result, Severity

LIGHT, DEEP = "light", "deep"
_CHECKS = frozenset({Verb.CHECK, Verb.VALIDATE})
_NOTE_CHARS = 200
_SEVERITIES = (Severity.FATAL, Severity.DEGRADED)


def orders(world: World) -> Iterator[tuple[str, Intent, SendOrder]]:
    """(light or deep, intent, order) of the checks in the state: those of the last hour, and those in flight."""
    for intent in world.book.intents.values():
        action = intent.action
        if intent.incident_id == UPKEEP and isinstance(action, SendOrder) and action.verb in _CHECKS:
            yield (DEEP if action.verb is Verb.CHECK else LIGHT), intent, action


def under_test(world: World, kind: str = DEEP) -> frozenset[str]:
    """Nodes whose check of this kind is in flight."""
    return frozenset(order.node for k, intent, order in orders(world) if k == kind and not intent.settled)


def follow_upkeep(world: World, new_id: Callable[[datetime], str]) -> Change:
    """The outcomes that came in since a node's record was last written."""
    records: dict[str, NodeRecord] = {}
    incidents: dict[str, Incident] = {}
    events: list[Event] = []
    settled = [(kind, i, o) for kind, i, o in orders(world) if i.state in (IntentState.DONE, IntentState.FAILED)]
    for kind, intent, order in sorted(settled, key=lambda each: (each[1].finished_at or world.now, each[1].key)):
        record = records.get(order.node) or world.book.nodes.get(order.node)
        if record is None or not _is_news(record, kind, intent, order):
            continue
        records[order.node] = _noted(record, kind, intent)
        fault = _fault(intent) if intent.state is IntentState.FAILED else None
        if fault is not None and order.node not in incidents and not _known(world, order.node):
            incidents[order.node], seen = _open(world, record, kind, fault, new_id)
            events += seen
    return Change(incidents=tuple(incidents.values()), nodes=tuple(records.values()), events=tuple(events))


def _is_news(record: NodeRecord, kind: str, intent: Intent, order: SendOrder) -> bool:
    at = record.deep_at if kind == DEEP else record.checked_at
    mine = (record.instance_id, record.boot_id) == (order.instance_id, order.boot_id)
    answered = intent.state is IntentState.DONE or "results" in intent.result
    return mine and answered and intent.finished_at is not None and (at is None or intent.finished_at > at)


def _noted(record: NodeRecord, kind: str, intent: Intent) -> NodeRecord:
    at, note = intent.finished_at, "" if intent.state is IntentState.DONE else intent.outcome[:_NOTE_CHARS] or "failed"
    if kind == DEEP:
        return replace(record, checked_at=max(filter(None, (at, record.checked_at))), deep_at=at, check_note=note)
    return replace(record, checked_at=at, check_note=note)


def _known(world: World, node: str) -> bool:
    return any(node_incidents.acting(i) for i in world.book.open_on(node))


def _fault(intent: Intent) -> tuple[Result, Grade] | None:
    """The worst result of a check that calls for action; None: nothing that does (not asked, unknown, a warning)."""
    bad = [(result, result.grade) for result in results_of(intent.result) if result.grade is not None]
    acting = [(result, grade) for result, grade in bad if grade.severity in _SEVERITIES]
    return min(acting, key=lambda each: _SEVERITIES.index(each[1].severity), default=None)


def _open(
    world: World, record: NodeRecord, kind: str, fault: tuple[Result, Grade], new_id: Callable[[datetime], str]
) -> Moved:
    result, grade = fault
    place = "" if result.component == NODE_COMPONENT else f" {result.component}"
    headline = f"{result.check}{f' {result.code}' if result.code else ''}{place}: {result.summary or 'failed'}"
    new = NewIncident(
        id=new_id(world.now),
        kind=IncidentKind.FAULT,
        node=record.name,
        instance_id=record.instance_id,
        boot_id=record.boot_id,
        severity=grade.severity,
        # A failed active test points to hardware; if the agent gives no detail, the next rung after a reset finds out.
        remedy=Remedy.REBOOT if grade.remedy is Remedy.NONE else grade.remedy,
        check=result.check,
        code=result.code,
        headline=headline[:_NOTE_CHARS],
        fault_at=world.now,
        note=f"found by the {kind} check of a spare",
    )
    detection = Detection(fault_text="seen now", detail={"upkeep": True})
    return open_incident(new, IncidentState.OPEN, world.now, detection)
