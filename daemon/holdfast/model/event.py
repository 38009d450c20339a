"""Events: the append-only record that every timing and cost is computed from. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class EventKind(StrEnum):
    FAULT_OCCURRED = "fault.occurred"
    """At the fault's own time (receipt − age)."""
    INCIDENT_OPENED = "incident.opened"
    """Evidence was received and durable: detection."""
    FINDING_JOINED = "finding.joined"
    FINDING_CLEARED = "finding.cleared"
    INCIDENT_STATE = "incident.state"
    INCIDENT_CLOSED = "incident.closed"
    ACTION_PLANNED = "action.planned"
    ACTION_STARTED = "action.started"
    ACTION_DONE = "action.done"
    ACTION_FAILED = "action.failed"
    ACTION_REFUSED = "action.refused"
    ACTION_WITHHELD = "action.withheld"
    NODE_OUT = "node.out_of_service"
    """Slurm shows the node drained or down."""
    NODE_DEAD = "node.dead"
    NODE_RETURNED = "node.returned"
    JOB_HURT = "job.hurt"
    JOB_STOPPED = "job.stopped"
    """Slurm's Restarts grew: the old run is over."""
    JOB_RUNNING = "job.running"
    """Slurm's RUNNING of the recovered run, at its StartTime or when first seen, whichever is later known exactly."""
    JOB_RESUMED = "job.resumed"
    """The job itself said from which step it goes on."""
    RECOVERY_PHASE = "recovery.phase"
    INSTANCE_UP = "instance.up"
    """The new machine's agent was heard."""
    NODE_VALIDATED = "node.validated"
    BRAKE_TRIPPED = "brake.tripped"
    BRAKE_RELEASED = "brake.released"
    PAUSED = "paused"
    RESUMED = "resumed"
    LEADER_ELECTED = "leader.elected"
    CONTROLLER_STARTED = "controller.started"
    OPERATOR = "operator"
    """Something an operator did through the API, with who and what."""


@dataclass(frozen=True, slots=True)
class Event:
    at: datetime
    kind: EventKind
    incident_id: str | None = None
    node: str | None = None
    job: str | None = None
    """JobKey.text."""
    text: str = ""
    """One line for people."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    id: int = 0
    """The store's number; 0 before it is stored."""
