"""Incidents, their lifecycle as a table, and the recovery of a job. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from holdfast.model.cluster import JobKey
from holdfast_checks.result import Remedy, Severity


class IncidentState(StrEnum):
    """Where an incident stands. Its job recoveries run beside it (:class:`RecoveryPhase`)."""

    WATCHING = "watching"
    """Recorded; nothing to do (a warning, an application's own fault, observe mode)."""
    SUSPECTED = "suspected"
    """A silent node: neither healthy nor failed until two independent witnesses agree."""
    OPEN = "open"
    """A fault that calls for action; the node is not out of service yet."""
    CONTAINED = "contained"
    """The node takes no new work; its jobs are being recovered or end by themselves."""
    REPAIRING = "repairing"
    """The ladder is at work on the node."""
    VALIDATING = "validating"
    """The repaired or new machine must prove itself before it serves."""
    AWAITING_HUMAN = "awaiting_human"
    """Holdfast may not or cannot go on; a human was told."""
    CLOSED = "closed"
    """Done; the node serves, or somebody else took it over."""


_S = IncidentState
TRANSITIONS: tuple[tuple[IncidentState, IncidentState, str], ...] = (
    (_S.WATCHING, _S.OPEN, "a joining finding raised the severity"),
    (_S.WATCHING, _S.CLOSED, "the condition cleared, or the watch ended"),
    (_S.SUSPECTED, _S.OPEN, "two independent witnesses: dead"),
    (_S.SUSPECTED, _S.CLOSED, "the agent is heard again"),
    (_S.OPEN, _S.CONTAINED, "Slurm shows the node drained or down"),
    (_S.OPEN, _S.WATCHING, "an operator took it over"),
    (_S.OPEN, _S.CLOSED, "the condition cleared before anything was done"),
    (_S.CONTAINED, _S.REPAIRING, "the node is free of jobs and a rung was chosen"),
    (_S.CONTAINED, _S.VALIDATING, "nothing to repair: prove and release (suspected job, fault cleared)"),
    (_S.CONTAINED, _S.AWAITING_HUMAN, "no rung is left or allowed"),
    (_S.CONTAINED, _S.CLOSED, "an operator took the node over"),
    (_S.REPAIRING, _S.VALIDATING, "the new or rebooted machine's agent is heard"),
    (_S.REPAIRING, _S.AWAITING_HUMAN, "the rung failed for good"),
    (_S.REPAIRING, _S.CLOSED, "an operator put the node back into service"),
    (_S.VALIDATING, _S.REPAIRING, "validation failed: next attempt or rung"),
    (_S.VALIDATING, _S.AWAITING_HUMAN, "validation failed and no rung is left"),
    (_S.VALIDATING, _S.CLOSED, "validated and back in service, or put back by an operator"),
    (_S.AWAITING_HUMAN, _S.REPAIRING, "a human told Holdfast to go on"),
    (_S.AWAITING_HUMAN, _S.CLOSED, "a human put the node back into service or closed the incident"),
)
_LEGAL = frozenset((a, b) for a, b, _ in TRANSITIONS)


def legal(before: IncidentState, after: IncidentState) -> bool:
    """Whether the table allows the step; staying is always legal."""
    return before == after or (before, after) in _LEGAL


@dataclass(frozen=True, slots=True)
class Incident:
    """One fault on one node from first evidence to closure."""

    id: str
    node: str
    instance_id: str
    """Machine that had the fault; empty where no provider knows it."""
    boot_id: str
    state: IncidentState
    severity: Severity
    remedy: Remedy
    check: str
    """Check of the leading finding: the class of the fault."""
    headline: str
    """``gpu.xid 79 GPU-…: fell off the bus``: what the Slurm reason says."""
    fault_at: datetime
    """Earliest fault time of its findings."""
    opened_at: datetime
    gpu_minors: frozenset[int] | None = None
    """GPUs at fault; None: the node as a whole (or a GPU that cannot be placed, which means the same)."""
    state_since: datetime | None = None
    closed_at: datetime | None = None
    acknowledged: bool = False
    """An operator took it over: recorded, never acted upon."""
    dead: bool = False
    """Two independent witnesses agreed that the node is dead."""
    rung: str = ""
    """Rung of the ladder that this attempt is on (:class:`holdfast.controller.ladder.Rung`); empty: none was begun."""
    machine: str = ""
    """Machine that has taken the node's name over in the course of this incident, in place; empty: ``instance_id`` still has it."""
    goes_at: datetime | None = None
    """When the provider takes the machine away (spot, maintenance, end of a capacity block); None: it does not."""
    notice: str = ""
    """What of the provider's own word it stands for (:func:`holdfast.controller.planned.key_of`); empty: for an agent's evidence."""
    job: str = ""
    """Run of a job that failed or hangs without a finding (``JobKey.text``, r, restarts), where that is what it is about."""
    suspects: tuple[str, ...] = ()
    """That job's nodes, of which one may be at fault."""
    odd: tuple[str, ...] | None = None
    """Of a job that hangs: nodes with ranks that stand elsewhere than the others; None: its stacks have not been read."""
    repair_attempt: int = 0
    """Attempts of the ladder so far; part of the provider's token."""
    validated_at: datetime | None = None
    """When this attempt of the ladder proved its machine; None: not (yet)."""
    note: str = ""
    """Why it stands where it stands, for people: shown on ``holdfast nodes`` and ``incident show``."""
    operated: int = 0
    """How often an operator has changed it. The store counts; it refuses a change made from an older count (Stale)."""

    @property
    def open(self) -> bool:
        return self.state is not IncidentState.CLOSED

    @property
    def serving_id(self) -> str:
        """The machine that has the node's name now, as far as the incident knows; empty: no provider knows it."""
        return self.machine or self.instance_id


class RecoveryPhase(StrEnum):
    """Where the recovery of one job run stands."""

    SAVING = "saving"
    """Its machine goes at a known time: the job was asked to save; it is stopped as soon as it has, or when the time is short."""
    AWAITING_CONSENT = "awaiting_consent"
    """The job did not opt in: it runs on, its owner was told; recovered when it fails by itself."""
    WAITING = "waiting"
    """A brake or missing nodes hold the recovery; the note says why."""
    STOPPING = "stopping"
    """Its nodes are being held and the requeue (or DOWN) was ordered."""
    RESTARTING = "restarting"
    """Slurm has requeued it (Restarts grew); it is to be released and to start."""
    RUNNING = "running"
    """Running again on other nodes; the first word of the job itself is awaited."""
    RESUMED = "resumed"
    """The job said from where it resumed, or has no checkpoint to speak of. Final."""
    LEFT_ALONE = "left_alone"
    """It cannot be requeued; its owner was told. Final."""
    HELD = "held"
    """Restart budget spent or the job itself is the suspect: held with a reason. Final."""
    GONE = "gone"
    """It ended or was cancelled meanwhile. Final."""


FINAL_PHASES = frozenset({RecoveryPhase.RESUMED, RecoveryPhase.LEFT_ALONE, RecoveryPhase.HELD, RecoveryPhase.GONE})


@dataclass(frozen=True, slots=True)
class Recovery:
    """The way of one job run back to work. (job, restarts_before) names it: one recovery per run, whatever the incidents."""

    job: JobKey
    restarts_before: int
    """Restarts of the run that was hurt; the recovered run has one more."""
    incident_id: str
    phase: RecoveryPhase
    user: str
    uid: int
    nodes_before: tuple[str, ...]
    excluded_before: tuple[str, ...]
    """The user's own exclusions, to be restored."""
    partition: str
    gpus: int
    """GPUs that the run held in all, for lost GPU-hours."""
    created_at: datetime
    consent: str = ""
    """On what ground it may be stopped: ``checkpoint``, ``job option``, ``partition policy`` …"""
    via_down: bool = False
    """Setting the dead node DOWN is the requeue; none is sent besides."""
    spare: str | None = None
    hold: str | None = None
    """Name of the reservation that keeps its nodes; None: none was made."""
    checkpoint_step: int | None = None
    """Newest complete checkpoint known when it was stopped."""
    stopped_step: int | None = None
    """Last step that the job had reported."""
    resumed_step: int | None = None
    excluded_added: tuple[str, ...] = ()
    """What the job's exclusions hold besides the user's own, as of its begin and again when the run started; taken back when the job is
    queued again and the node serves (``decide/allow.py``)."""
    suspect: bool = False
    """Held because the job itself is the suspect: the nodes that it hurt are validated and released, not repaired."""
    note: str = ""

    @property
    def id(self) -> str:
        return f"{self.job.text}r{self.restarts_before}"

    @property
    def final(self) -> bool:
        return self.phase in FINAL_PHASES
