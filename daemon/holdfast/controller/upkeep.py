"""What checks by order said of nodes that no incident is about: spares. Pure.

Such orders belong to no incident; in the record they go under the name ``upkeep``, which no incident has. The node's record keeps when
it was checked and what was wrong. A fault that such a check finds opens an incident, as any finding would."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from holdfast.controller import facts
from holdfast.model.action import Intent, IntentState, SendOrder, Verb
from holdfast.model.book import Change, NodeRecord, World
from holdfast.model.event import Event, EventKind
from holdfast.model.ids import UPKEEP
from holdfast.model.incident import Incident, IncidentState
from holdfast_checks.result import Remedy, Severity, Verdict

LIGHT, DEEP = "light", "deep"
_NOTE_CHARS = 200
_BAD = frozenset({Verdict.DEGRADED.value, Verdict.FAILED.value})
_SEVERITIES = (Severity.FATAL, Severity.DEGRADED)


def step_of(kind: str, node: str, period: int) -> str:
    return f"SendOrder/check.{kind}/{node}.{period}"


def orders(world: World) -> Iterator[tuple[str, Intent, SendOrder]]:
    """(light or deep, intent, order) of the checks that the book remembers: an hour's, and those on their way."""
    for intent in world.book.intents.values():
        action = intent.action
        if intent.incident_id == UPKEEP and isinstance(action, SendOrder):
            yield (DEEP if action.verb is Verb.CHECK else LIGHT), intent, action


def under_test(world: World, kind: str = DEEP) -> frozenset[str]:
    """Nodes whose check of this kind is on its way."""
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
        fault = _fault(intent.result) if intent.state is IntentState.FAILED else None
        if fault is not None and order.node not in incidents and not _known(world, order.node):
            incident = _incident(world, record, kind, fault, new_id)
            incidents[order.node] = incident
            events += _opened(incident)
    return Change(incidents=tuple(incidents.values()), nodes=tuple(records.values()), events=tuple(events))


def _is_news(record: NodeRecord, kind: str, intent: Intent, order: SendOrder) -> bool:
    at = record.deep_at if kind == DEEP else record.checked_at
    mine = (record.instance_id, record.boot_id) == (order.instance_id, order.boot_id)
    answered = intent.state is IntentState.DONE or "results" in intent.result
    return mine and answered and intent.finished_at is not None and (at is None or intent.finished_at > at)


def _noted(record: NodeRecord, kind: str, intent: Intent) -> NodeRecord:
    at, note = intent.finished_at, "" if intent.state is IntentState.DONE else intent.outcome[:_NOTE_CHARS]
    if kind == DEEP:
        return replace(record, checked_at=max(filter(None, (at, record.checked_at))), deep_at=at, check_note=note)
    return replace(record, checked_at=at, check_note=note)


def _known(world: World, node: str) -> bool:
    return any(facts.acting(i) for i in world.book.open_on(node))


def _fault(result: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The worst result of a check that calls for action; None: nothing that does (not asked, unknown, a warning)."""
    results = result.get("results")
    bad = [
        r
        for r in (results if isinstance(results, list) else ())
        if isinstance(r, dict) and r.get("verdict") in _BAD and r.get("severity") in _SEVERITIES
    ]
    return min(bad, key=lambda r: _SEVERITIES.index(Severity(r["severity"])), default=None)


def _incident(
    world: World, record: NodeRecord, kind: str, fault: Mapping[str, Any], new_id: Callable[[datetime], str]
) -> Incident:
    check, component, code = (str(fault.get(name, "")) for name in ("check", "component", "code"))
    place = "" if component in ("", "node") else f" {component}"
    headline = f"{check}{f' {code}' if code else ''}{place}: {fault.get('summary') or 'failed'}"
    remedy = str(fault.get("remedy", ""))
    return Incident(
        id=new_id(world.now),
        node=record.name,
        instance_id=record.instance_id,
        boot_id=record.boot_id,
        state=IncidentState.OPEN,
        severity=Severity(fault["severity"]),
        # An active test that fails names hardware; where the agent says nothing the next rung after a reset finds out.
        remedy=Remedy(remedy) if remedy in tuple(Remedy) and remedy != Remedy.NONE else Remedy.REBOOT,
        check=check,
        headline=headline[:_NOTE_CHARS],
        fault_at=world.now,
        opened_at=world.now,
        state_since=world.now,
        note=f"found by the {kind} check of a spare",
    )


def _opened(incident: Incident) -> list[Event]:
    detail = {
        "check": incident.check,
        "severity": incident.severity.value,
        "remedy": incident.remedy.value,
        "upkeep": True,
    }
    return [
        Event(incident.fault_at, EventKind.FAULT_OCCURRED, incident.id, incident.node, text="seen now", detail=detail),
        Event(
            incident.opened_at,
            EventKind.INCIDENT_OPENED,
            incident.id,
            incident.node,
            text=incident.headline,
            detail=detail,
        ),
    ]
