"""Substitutes for rows whose document cannot be read (damaged, or of another release), built from the row's own columns.

Nothing is lost and nothing is done twice: the substitute says that the document cannot be read, and asks for an operator.
The document stays in the row until something writes the row again (an operator who closes the incident)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import RowMapping

from holdfast.model.actions.action import Intent, IntentState, UnknownAction
from holdfast.model.actions.steps import StepKey
from holdfast.model.agents.report import Finding
from holdfast.model.book import Brake, BrakeKind
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState, Recovery, RecoveryPhase
from holdfast.model.incidents.transitions import NewIncident, close, open_incident
from holdfast.model.slurm.cluster import JobKey, JobRun
from holdfast.store.codec import UnreadableDocument, decode
from holdfast.store.columns import UNREADABLE_TIME
from holdfast.unknown import set_aside
from holdfast_checks.result import Remedy, Severity
from holdfast_checks.words import known

T = TypeVar("T")
_ID = re.compile(r"[0-9A-Za-z_.-]{1,64}")
_CANNOT_BE_READ = "its record in the store cannot be read"


def readable(read: Callable[[], T], instead: Callable[[], T], table: str, key: object) -> T:
    """The result of ``read``; for an unreadable document that of ``instead``, with a log line."""
    try:
        return read()
    except UnreadableDocument as error:
        set_aside(table, str(key), str(error))
        return instead()


def incident(row: RowMapping) -> Incident | None:
    """An incident held until an operator closes it; a closed one stays closed. None: the row's id is invalid, nothing can refer to it."""
    if not _ID.fullmatch(row["id"]):
        return None
    new = NewIncident(
        id=row["id"],
        kind=IncidentKind.UNREADABLE,
        node=row["node"],
        severity=Severity.DEGRADED,
        remedy=Remedy.HUMAN,
        check="store.unreadable",
        headline=f"incident {row['id']}: {_CANNOT_BE_READ}",
        fault_at=row["opened_at"],
        note="nothing but a drain is done about the node until an operator closes the incident",
    )
    made, _ = open_incident(new, IncidentState.AWAITING_HUMAN, row["opened_at"])
    if not row["is_open"]:
        made, _ = close(made, row["closed_at"] or row["opened_at"], _CANNOT_BE_READ)
    return replace(made, operated=row["operated"])


def cleared_at(row: RowMapping) -> datetime | None:
    """When the finding was cleared; a time that cannot be read clears nothing."""
    at: datetime | None = row["cleared_at"]
    return None if at == UNREADABLE_TIME else at


def last_fault_at(row: RowMapping) -> datetime | None:
    """When the finding last occurred; None for a time that cannot be read."""
    at: datetime | None = row["last_fault_at"]
    return None if at == UNREADABLE_TIME else at


def finding(row: RowMapping) -> Finding:
    """A finding of the node that asks for an operator."""
    return Finding(
        id=row["id"],
        node=row["node"],
        instance_id=row["instance_id"],
        boot_id="",
        check=row["check_id"],
        component=row["component"],
        code="",
        severity=Severity.DEGRADED,
        remedy=Remedy.HUMAN,
        failed=False,
        summary=_CANNOT_BE_READ,
        fault_at=row["last_fault_at"],
        received_at=row["last_seen_at"],
        sticky=row["sticky"],
        incident_id=row["incident_id"],
        cleared_at=cleared_at(row),
    )


def recovery(row: RowMapping) -> Recovery | None:
    """A recovery that is left to the job's owner. None: neither the row's name nor its document identifies a run."""
    run = JobRun.parse(row["id"])
    if run is None:
        return _left_alone(row["document"])
    return Recovery(
        job=JobKey(run.cluster, run.job_id, datetime.fromtimestamp(run.submitted_s, UTC)),
        restarts_before=run.restarts,
        incident_id=row["incident_id"],
        phase=RecoveryPhase.LEFT_ALONE,
        user="",
        uid=-1,  # without a user: only operators see it
        nodes_before=(),
        excluded_before=(),
        partition="",
        gpus=0,
        created_at=row["created_at"],
        note=_CANNOT_BE_READ,
    )


def _left_alone(document: Any) -> Recovery | None:
    try:
        return replace(decode(Recovery, document), phase=RecoveryPhase.LEFT_ALONE, note=_CANNOT_BE_READ)
    except UnreadableDocument:
        return None


def key_of(text: object) -> str | None:
    """The key of a step; None: it is invalid."""
    try:
        return StepKey.parse(str(text)).text
    except ValueError:
        return None


def intent(row: RowMapping) -> Intent | None:
    """An intent that failed and is not repeated: its effect is not known. None: neither the row's key nor its document's is valid."""
    document = row["document"]
    key = key_of(row["key"]) or key_of(document.get("key") if isinstance(document, dict) else None)
    if key is None:
        return None
    return Intent(
        key=key,
        incident_id=StepKey.parse(key).incident_id,
        action=UnknownAction(row["kind"], {"type": row["kind"], "node": row["node"]}),
        reason=_CANNOT_BE_READ,
        fence=0,
        state=IntentState.WITHHELD if row["state"] == IntentState.WITHHELD else IntentState.FAILED,
        planned_at=row["planned_at"],
        order=row["position"],
        finished_at=row["planned_at"],
        outcome=f"{_CANNOT_BE_READ}; counts as failed, is not repeated",
    )


def brake(name: str, since: datetime) -> Brake:
    """A brake that holds until an operator releases it: that of a set every node, since it is not known which it had."""
    kind, _, node_set = name.partition("@")
    return Brake(known(BrakeKind, kind) or BrakeKind.DRAINS, since, _CANNOT_BE_READ, None, node_set)
