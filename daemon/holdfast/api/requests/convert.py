"""From the wire's models to the core's nouns: places everything in time by receipt minus age. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from holdfast.api.requests.wire import (
    MAX_AGE_S,
    ClearItem,
    FindingItem,
    InventoryItem,
    OutcomeItem,
    ReportBody,
    StatementItem,
    WireItem,
)
from holdfast.model.agents.answers import with_refusal
from holdfast.model.agents.report import Clear, Finding, Inventory, OrderOutcome, Report, Statement
from holdfast.model.incidents.observed import would_be
from holdfast_checks.result import Remedy, Scalar, Severity, Verdict

RAISING = frozenset({Verdict.DEGRADED, Verdict.FAILED})


@dataclass(frozen=True, slots=True)
class Notes:
    """What was set aside: for the log and the counters, never acted upon."""

    history: tuple[FindingItem, ...] = ()
    """Findings of a first start or of another boot's log."""
    not_bad: tuple[FindingItem, ...] = ()
    """Findings whose verdict raises nothing (ok, unknown, skipped)."""
    clamped: int = 0
    """Ages below zero (a clock that stepped) or beyond seven days."""


def to_report(body: ReportBody, items: Iterable[WireItem], received_at: datetime) -> tuple[Report, Notes]:
    """The report to be stored, and what was set aside."""
    kinds = tuple(items)
    findings = [i for i in kinds if isinstance(i, FindingItem)]
    history = tuple(f for f in findings if f.history)
    live = [f for f in findings if not f.history]
    not_bad = tuple(f for f in live if f.verdict not in RAISING)
    inventories = [i for i in kinds if isinstance(i, InventoryItem)]
    report = Report(
        node=body.node,
        instance_id=body.instance_id,
        boot_id=body.boot_id,
        outbox_id=body.outbox_id,
        sequence=body.sequence,
        received_at=received_at,
        agent_version=body.agent_version,
        findings=tuple(_finding(body, f, received_at) for f in live if f.verdict in RAISING),
        clears=tuple(Clear(c.check, c.component, _at(received_at, c.age_s)) for c in kinds if isinstance(c, ClearItem)),
        statements=tuple(_statement(s, received_at) for s in kinds if isinstance(s, StatementItem)),
        outcomes=tuple(
            OrderOutcome(o.order_id, o.ok, o.summary, _at(received_at, o.age_s), _detail(o), o.bundle)
            for o in kinds
            if isinstance(o, OutcomeItem)
        ),
        inventory=_inventory(inventories[-1]) if inventories else None,
    )
    clamped = sum(1 for i in kinds if not isinstance(i, InventoryItem) and not 0 <= i.age_s <= MAX_AGE_S)
    return report, Notes(history, not_bad, clamped)


def _detail(item: OutcomeItem) -> Mapping[str, Any]:
    """With the refusal of an agent of an earlier release as a field: the only place that reads it from the text."""
    return item.detail if item.ok else with_refusal(item.detail, item.summary)


def _at(received_at: datetime, age_s: float) -> datetime:
    return received_at - timedelta(seconds=min(max(age_s, 0.0), MAX_AGE_S))


def _finding(body: ReportBody, item: FindingItem, received_at: datetime) -> Finding:
    """A missing severity is a warning: missing data is never bad news about a node."""
    severity, remedy = item.severity or Severity.WARNING, item.remedy or Remedy.NONE
    would = would_be(item.evidence, severity, remedy)
    return Finding(
        id=0,
        node=body.node,
        instance_id=body.instance_id,
        boot_id=body.boot_id,
        check=item.check,
        component=item.component or "node",
        code=item.code,
        severity=severity,
        remedy=remedy,
        failed=item.verdict is Verdict.FAILED,
        summary=item.summary,
        fault_at=_at(received_at, item.age_s),
        received_at=received_at,
        evidence=_evidence(item),
        gpu_uuid=item.gpu_uuid,
        gpu_minor=item.gpu_minor,
        pci=item.pci.lower() if item.pci else None,
        consequence=bool(item.consequence),
        sticky=bool(item.sticky),
        would_severity=would.severity if would else None,
        would_remedy=would.remedy if would else None,
    )


def _evidence(item: FindingItem) -> Mapping[str, Scalar]:
    """The node's own times are evidence, and nothing but evidence."""
    evidence = dict(item.evidence)
    if item.wall_time:
        evidence.setdefault("wall_time", item.wall_time)
    if item.monotonic_s is not None:
        evidence.setdefault("monotonic_s", item.monotonic_s)
    return evidence


def _statement(item: StatementItem, received_at: datetime) -> Statement:
    return Statement(
        kind=item.statement,
        job_id=item.job_id,
        uid=item.uid,
        restarts=item.restarts,
        at=_at(received_at, item.age_s),
        step=item.step,
        path=item.path,
        detail=item.detail,
    )


def _inventory(item: InventoryItem) -> Inventory:
    return Inventory(gpus=item.gpus, driver_version=item.driver_version, detail=item.detail)
