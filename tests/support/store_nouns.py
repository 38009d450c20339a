"""Small builders of store records; every argument has a plain default."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.model.actions.action import Action, Drain, Intent, IntentState, SendOrder, Verb
from holdfast.model.agents.report import Finding, Report, Statement
from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import Incident, IncidentState, Recovery, RecoveryPhase
from holdfast.model.slurm.cluster import JobKey
from holdfast_checks.result import Remedy, Severity

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def finding(**changed: Any) -> Finding:
    plain = Finding(
        id=0,
        node="n1",
        instance_id="i-1",
        boot_id="boot-1",
        check="gpu.xid",
        component="GPU-3",
        code="79",
        severity=Severity.FATAL,
        remedy=Remedy.REPLACE,
        failed=True,
        summary="GPU has fallen off the bus",
        fault_at=NOW,
        received_at=NOW,
        evidence={"xid": 79, "ratio": 0.5, "first": True},
        gpu_uuid="GPU-3",
        gpu_minor=3,
    )
    return replace(plain, **changed)


def report(sequence: int = 1, **changed: Any) -> Report:
    return replace(Report("n1", "i-1", "boot-1", "outbox-1", sequence, NOW), **changed)


def statement(kind: str, **changed: Any) -> Statement:
    return replace(Statement(kind=kind, job_id=7, uid=1000, restarts=0, at=NOW), **changed)


def incident(name: str = "inc1", **changed: Any) -> Incident:
    plain = Incident(
        id=name,
        node="n1",
        instance_id="i-1",
        boot_id="boot-1",
        state=IncidentState.OPEN,
        severity=Severity.FATAL,
        remedy=Remedy.REPLACE,
        check="gpu.xid",
        headline="gpu.xid 79 GPU-3: fell off the bus",
        fault_at=NOW,
        opened_at=NOW,
        gpu_minors=frozenset({3, 1}),
    )
    return replace(plain, **changed)


def closed(name: str, at: datetime, **changed: Any) -> Incident:
    return incident(name, state=IncidentState.CLOSED, closed_at=at, **changed)


def job_key(job_id: int = 7) -> JobKey:
    return JobKey("practice", job_id, NOW)


def recovery(job_id: int = 7, **changed: Any) -> Recovery:
    plain = Recovery(
        job=job_key(job_id),
        restarts_before=0,
        incident_id="inc1",
        phase=RecoveryPhase.STOPPING,
        user="ada",
        uid=1000,
        nodes_before=("n1", "n2"),
        excluded_before=(),
        partition="gpu",
        gpus=16,
        created_at=NOW,
    )
    return replace(plain, **changed)


def intent(key: str = "inc1/Drain/n1/1", action: Action | None = None, **changed: Any) -> Intent:
    plain = Intent(
        key=key,
        incident_id="inc1",
        action=action or Drain("n1", "holdfast[inc1]: gpu.xid 79"),
        reason="a fatal fault",
        fence=1,
        state=IntentState.PLANNED,
        planned_at=NOW,
    )
    return replace(plain, **changed)


def order(key: str = "inc1/SendOrder/validate/n1/1", **changed: Any) -> Intent:
    action = SendOrder("n1", "i-1", "", Verb.VALIDATE, expires_s=60.0, args={"checks": []})
    return intent(key, replace(action, **changed))


def event(text: str = "it happened", **changed: Any) -> Event:
    return replace(Event(NOW, EventKind.INCIDENT_STATE, "inc1", "n1", None, text, {"n": 1}), **changed)
