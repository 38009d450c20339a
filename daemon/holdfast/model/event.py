"""Events: the append-only record that every timing and cost is computed from. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from holdfast_checks.words import unknown_reads_as


@unknown_reads_as("unknown", "the event is shown, with the word before its text; no timing is computed from it")
class EventKind(StrEnum):
    UNKNOWN = "unknown"
    """Recorded by another release, under a word that this one does not know; the text begins with that word."""
    FAULT_OCCURRED = "fault.occurred"
    """At the fault's own time (receipt − age)."""
    INCIDENT_OPENED = "incident.opened"
    """Evidence was received and durable: detection. ``to`` in the detail: the state in which it is opened; absent where a suspicion
    (a silent node, a job that failed without a cause) is raised, of which ``incident.state`` names the step, and in records of 0.1.0a1.
    A suspicion that is dropped has no such event."""
    FINDING_JOINED = "finding.joined"
    """One more finding of the same fault."""
    INCIDENT_STATE = "incident.state"
    """The incident moved on in its lifecycle, ``from`` and ``to`` in the detail; ``to`` alone: it begins, as a suspicion; without them:
    something new about it."""
    INCIDENT_CLOSED = "incident.closed"
    """The incident is over; the text says how. ``from`` in the detail: the state in which it was."""
    ACTION_PLANNED = "action.planned"
    """The intent of a step outside is durable, with its reason."""
    ACTION_STARTED = "action.started"
    """The step was begun; after a crash the outside is asked before it is repeated."""
    ACTION_DONE = "action.done"
    """The step is done, and the outside confirmed it."""
    ACTION_FAILED = "action.failed"
    """It did not happen; the text has the outside's own words."""
    ACTION_REFUSED = "action.refused"
    """The facts had changed right before the step (an operator's drain, a newer run): correctly not done."""
    ACTION_WITHHELD = "action.withheld"
    """A brake, a pause or observe mode: what would have been done."""
    NODE_OUT = "node.out_of_service"
    """Slurm shows the node drained or down."""
    NODE_DEAD = "node.dead"
    """Two independent witnesses agree that the node is dead."""
    NODE_RETURNED = "node.returned"
    """The node serves again; ``by_others`` in the detail: an operator or another tool put it back."""
    NODE_DRAINED_BY_OTHERS = "node.drained_by_others"
    """Slurm shows the node drained, not by Holdfast, or with another reason than before. ``by`` in the detail: an operator or another
    tool (``others``), or Slurm itself (``slurm``); with Slurm's ``reason``, ``user`` and ``time``. Without a node: of many at once, named
    in ``nodes`` and ``groups``."""
    NODE_DOWN = "node.down"
    """Slurm shows the node DOWN and not drained, not by Holdfast; the same detail."""
    NODE_RESUMED_BY_OTHERS = "node.resumed_by_others"
    """Slurm shows the node in service again, not by Holdfast; ``out_s`` in the detail: for how long it was out, and what its reason was."""
    NODES_FIRST_READ = "nodes.first_read"
    """The first reading of Slurm on record: the nodes that were out of service, not by Holdfast. Recorded once."""
    NODE_MACHINE = "node.machine"
    """The node runs in another boot, or another machine serves it, as its agent shows."""
    JOB_HURT = "job.hurt"
    """A job holds what is at fault; the text says what becomes of it."""
    JOB_STOPPED = "job.stopped"
    """Slurm's Restarts grew: the old run is over."""
    JOB_RUNNING = "job.running"
    """Slurm's RUNNING of the recovered run, at its StartTime or when first seen, whichever is later known exactly."""
    JOB_RESUMED = "job.resumed"
    """The job itself reported from which step it continues."""
    RECOVERY_PHASE = "recovery.phase"
    """The way of a job back to work moved on."""
    INSTANCE_UP = "instance.up"
    """The new machine's agent reported."""
    NODE_VALIDATED = "node.validated"
    """The repaired or new machine has proved itself."""
    PROPOSAL_OPENED = "proposal.opened"
    """A step waits for an operator's accept; ``proposal`` in the detail is its id. The answer is an event ``operator``."""
    PROPOSAL_ENDED = "proposal.ended"
    """A proposal expired, or its step is no longer called for; ``state`` in the detail."""
    BRAKE_TRIPPED = "brake.tripped"
    """A brake holds from now on; the text says why."""
    BRAKE_RELEASED = "brake.released"
    """An operator released a brake."""
    QUORUM_JOINED = "quorum.joined"
    """A start of a group of an elastic job reported in its rendezvous for the first time."""
    QUORUM_LOST = "quorum.lost"
    """A group fell silent; whether it is gone is not known yet."""
    QUORUM_BACK = "quorum.back"
    """A silent group reports again."""
    QUORUM_EVICTED = "quorum.evicted"
    """A group's run was evicted for good by Holdfast; the others need not wait for it; ``went_on``: they have continued already."""
    QUORUM_LEFT = "quorum.left"
    """A group left after a finished step."""
    QUORUM_REPLACED = "quorum.replaced"
    """A later start of the same group took its place."""
    QUORUM_FORMED = "quorum.formed"
    """A quorum with other members than the last one: these groups continue; ``full``: as many as before a loss."""
    QUORUM_DONE = "quorum.done"
    """A group reported that the training is done: no group may join its rendezvous any more."""
    QUORUM_OMITTED = "quorum.omitted"
    """A rendezvous' members cause more events than are recorded; the text says how many were left out."""
    QUORUM_CLOSED = "quorum.closed"
    """A rendezvous was closed, since Slurm no longer shows its job."""
    PAUSED = "paused"
    """An operator paused all actions."""
    RESUMED = "resumed"
    """An operator ended a pause."""
    CLOCK_STEP = "clock.step"
    """The wall clock of the controller's machine was set; by how many ``seconds``, in the detail."""
    NOTICE_MADE = "notice.made"
    """A message to people was made and queued for delivery; ``addresses`` in the detail: to whom; ``stands_for``: number of matters."""
    NOTICE_DELIVERED = "notice.delivered"
    """An address took a message; ``address`` and ``attempts`` in the detail."""
    NOTICE_FAILED = "notice.failed"
    """An address did not take a message for the first time, or for a day (``given_up``); it is tried again in between."""
    OPERATOR = "operator"
    """Something an operator did through the API, with who and what."""


class FailedPart(StrEnum):
    """Part of a ladder attempt that failed."""

    RUNG = "rung"
    """The step itself: no machine reported."""
    LATE = "late"
    """It was not validated in time."""
    CHECKS = "checks"
    SAME_HARDWARE = "same_hardware"
    """GPUs that the faulty machine had came back."""
    NEW_FINDING = "new_finding"
    PROOF = "proof"
    """The deep check or the pair probe."""


BY_OTHERS = "by_others"
"""Detail of ``node.returned``: whether an operator or another tool put the node back; absent in records of before 0.1.0a3: Holdfast did."""
ATTEMPT_FAILED, FAILURE = "attempt_failed", "failure"
"""Of ``incident.state`` where an attempt of the ladder failed: its number, from 1 on, and what failed."""


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
