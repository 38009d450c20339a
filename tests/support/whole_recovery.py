"""The events of one recovery from fault to return, at the times that the tests of timings and totals expect."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.model.event import Event, EventKind

K = EventKind
T0 = datetime(2026, 3, 1, tzinfo=UTC)
JOB = "c/7@1"


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def event(seconds: float, what: EventKind, job: str | None = None, incident: str = "a", /, **detail: Any) -> Event:
    return Event(at(seconds), what, incident, "n1", job, detail=detail)


WHOLE = (
    event(100.0, K.FAULT_OCCURRED),
    event(100.2, K.INCIDENT_OPENED),
    event(100.3, K.ACTION_PLANNED, kind="Drain"),
    event(100.35, K.ACTION_PLANNED, kind="Requeue"),
    event(100.5, K.ACTION_DONE, kind="Drain"),
    event(100.9, K.NODE_OUT),
    event(
        101.3,
        K.JOB_STOPPED,
        JOB,
        gpus=16,
        checkpoint_step=40,
        checkpoint_at=at(41.3).isoformat(),
        stopped_step=47,
        restarts=1,
    ),
    event(103.3, K.JOB_RUNNING, JOB, nodes=["n2"]),
    event(113.3, K.JOB_RESUMED, JOB, step=40, lost_steps=8),
    event(130.5, K.INSTANCE_UP),
    event(140.5, K.NODE_VALIDATED),
    event(141.5, K.NODE_RETURNED),
)
