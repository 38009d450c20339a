"""What is read in place of a row whose document cannot be read (damaged, or of another release): made of the row's own columns.

The rule is that nothing is lost and nothing is done twice: the noun is there, says that it cannot be read, and calls for an operator.
The document stays in the row as it is until something writes the noun again (an operator who closes the incident)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from sqlalchemy import RowMapping

from holdfast.model.action import Intent, IntentState, UnknownAction
from holdfast.model.book import Brake, BrakeKind
from holdfast.model.cluster import JobKey, JobRun
from holdfast.model.incident import Incident, IncidentKind, IncidentState, Recovery, RecoveryPhase
from holdfast.model.report import Finding
from holdfast.model.transitions import NewIncident, close, open_incident
from holdfast.store.codec import Unreadable
from holdfast.unknown import set_aside
from holdfast_checks.result import Remedy, Severity
from holdfast_checks.words import known

T = TypeVar("T")
_CANNOT_BE_READ = "its record in the store cannot be read"


def readable(read: Callable[[], T], instead: Callable[[], T], table: str, key: object) -> T:
    """What ``read`` gives; for a document that cannot be read what ``instead`` gives, and a line in the log."""
    try:
        return read()
    except Unreadable as error:
        set_aside(table, str(key), str(error))
        return instead()


def incident(row: RowMapping) -> Incident:
    """Held until an operator closes it; one that was closed stays closed."""
    new = NewIncident(
        id=row["id"],
        kind=IncidentKind.UNREADABLE,
        node=row["node"],
        severity=Severity.DEGRADED,
        remedy=Remedy.HUMAN,
        check="store.unreadable",
        headline=f"incident {row['id']}: {_CANNOT_BE_READ}",
        fault_at=row["opened_at"],
        note="nothing is done about the node until an operator closes the incident",
    )
    made, _ = open_incident(new, IncidentState.AWAITING_HUMAN, row["opened_at"])
    if not row["is_open"]:
        made, _ = close(made, row["closed_at"] or row["opened_at"], _CANNOT_BE_READ)
    return replace(made, operated=row["operated"])


def finding(row: RowMapping) -> Finding:
    """Of the node, and for an operator."""
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
        cleared_at=row["cleared_at"],
    )


def recovery(row: RowMapping) -> Recovery | None:
    """Left to the job's owner. None: the row's own name tells of no run."""
    run = JobRun.parse(row["id"])
    if run is None:
        return None
    return Recovery(
        job=JobKey(run.cluster, run.job_id, datetime.fromtimestamp(run.submitted_s, UTC)),
        restarts_before=run.restarts,
        incident_id=row["incident_id"],
        phase=RecoveryPhase.LEFT_ALONE,
        user="",
        uid=-1,  # no user's: it is shown to operators alone
        nodes_before=(),
        excluded_before=(),
        partition="",
        gpus=0,
        created_at=row["created_at"],
        note=_CANNOT_BE_READ,
    )


def intent(row: RowMapping) -> Intent:
    """Failed, not to be repeated: what came of it is not known."""
    return Intent(
        key=row["key"],
        incident_id=row["incident_id"],
        action=UnknownAction(row["kind"], {"type": row["kind"], "node": row["node"]}),
        reason=_CANNOT_BE_READ,
        fence=0,
        state=IntentState.WITHHELD if row["state"] == IntentState.WITHHELD else IntentState.FAILED,
        planned_at=row["planned_at"],
        order=row["position"],
        finished_at=row["planned_at"],
        outcome=f"{_CANNOT_BE_READ}; counts as failed, is not repeated",
    )


def brake(kind: str, since: datetime) -> Brake:
    """Holds until an operator releases it."""
    return Brake(known(BrakeKind, kind) or BrakeKind.DRAINS, since, _CANNOT_BE_READ)
