"""Incidents, their lifecycle as a table, and the recovery of a job. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from holdfast.model.operators.node_orders import MachineOrder
from holdfast.model.operators.proposals import ProposalRecord
from holdfast.model.slurm.cluster import JobKey, JobRun
from holdfast_checks.result import Remedy, Severity
from holdfast_checks.words import unknown_reads_as


@unknown_reads_as("awaiting_human", "the incident becomes one of kind `unreadable`; one that is closed stays closed")
class IncidentState(StrEnum):
    """State of an incident. Its job recoveries run in parallel (:class:`RecoveryPhase`)."""

    WATCHING = "watching"
    """Recorded; nothing to do (a warning, an application's own fault, observe mode)."""
    SUSPECTED = "suspected"
    """A silent node: neither healthy nor failed until witnesses agree."""
    OPEN = "open"
    """A fault that calls for action; the node is not out of service yet."""
    CONTAINED = "contained"
    """The node takes no new work; its jobs are being recovered or run to their end."""
    REPAIRING = "repairing"
    """The ladder is at work on the node."""
    VALIDATING = "validating"
    """The repaired or new machine must prove itself before it serves."""
    AWAITING_HUMAN = "awaiting_human"
    """Holdfast may not or cannot continue; an operator was notified."""
    CLOSED = "closed"
    """Done; the node serves, or an operator took it over."""


OUT_OF_SERVICE = frozenset(
    {IncidentState.CONTAINED, IncidentState.REPAIRING, IncidentState.VALIDATING, IncidentState.AWAITING_HUMAN}
)
"""States of an incident whose node was seen out of service for it."""


class MovedBy(StrEnum):
    """Actor of a transition."""

    HOLDFAST = "holdfast"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the table of states."""

    before: IncidentState | None
    """None: the incident is opened in ``after``."""
    after: IncidentState
    """The same as ``before``: the state starts again, and its time counts from then."""
    when: str
    by: MovedBy = MovedBy.HOLDFAST


_S = IncidentState
_OPERATOR = MovedBy.OPERATOR
TRANSITIONS: tuple[Transition, ...] = (
    Transition(
        None, _S.WATCHING, "a warning, an announcement that is not due yet, or a job that failed, hangs or is slow"
    ),
    Transition(None, _S.SUSPECTED, "no agent of a node that is in use has reported for long"),
    Transition(None, _S.OPEN, "a fault that calls for action, or an announcement that is due"),
    Transition(None, _S.AWAITING_HUMAN, "Slurm shows a drain of Holdfast's that the store does not know"),
    Transition(_S.WATCHING, _S.OPEN, "a joining finding raised the severity, or the announced time has come"),
    Transition(
        _S.WATCHING, _S.WATCHING, "the run of a job that hung or was slow is over: its nodes are probed in pairs"
    ),
    Transition(_S.WATCHING, _S.CLOSED, "the condition cleared, or the watch ended"),
    Transition(_S.SUSPECTED, _S.OPEN, "witnesses agree: dead, or to be drained"),
    Transition(_S.SUSPECTED, _S.CLOSED, "the agent reports again"),
    Transition(_S.OPEN, _S.CONTAINED, "Slurm shows the node drained or down"),
    Transition(
        _S.OPEN,
        _S.WATCHING,
        "an operator has acknowledged it, or a node thought dead reports again with nothing but a warning",
    ),
    Transition(_S.OPEN, _S.CLOSED, "the condition cleared before anything was done"),
    Transition(_S.CONTAINED, _S.REPAIRING, "the node is free of jobs and a rung was chosen"),
    Transition(
        _S.CONTAINED,
        _S.VALIDATING,
        "nothing to repair: prove and release (suspected job, fault cleared, reports again, another machine by now)",
    ),
    Transition(
        _S.CONTAINED,
        _S.AWAITING_HUMAN,
        "no rung is left or allowed, or it is unknown whether an operator resumed the node",
    ),
    Transition(
        _S.CONTAINED, _S.CLOSED, "an operator put the node back into service, or a node thought dead reports again"
    ),
    Transition(_S.REPAIRING, _S.REPAIRING, "the attempt failed: next attempt or rung"),
    Transition(
        _S.REPAIRING,
        _S.VALIDATING,
        "the agent of the new, rebooted or exchanged machine reports, or the old one's again",
    ),
    Transition(
        _S.REPAIRING,
        _S.AWAITING_HUMAN,
        "the rung failed for good, an operator drained the node, or may have resumed it",
    ),
    Transition(_S.REPAIRING, _S.CLOSED, "an operator put the node back into service"),
    Transition(
        _S.VALIDATING,
        _S.VALIDATING,
        "another hand exchanged the machine: what serves now is validated; or the machine of a node thought dead reports again",
    ),
    Transition(_S.VALIDATING, _S.REPAIRING, "validation failed: next attempt or rung"),
    Transition(
        _S.VALIDATING,
        _S.AWAITING_HUMAN,
        "validation failed and no rung is left, an operator drained the node, or may have resumed it",
    ),
    Transition(_S.VALIDATING, _S.CLOSED, "validated and back in service, or put back by an operator"),
    Transition(_S.AWAITING_HUMAN, _S.CLOSED, "an operator put the node back into service"),
    Transition(_S.AWAITING_HUMAN, _S.VALIDATING, "a node thought dead reports again, and its machine was not touched"),
    Transition(_S.AWAITING_HUMAN, _S.REPAIRING, "`holdfast incident retry`", _OPERATOR),
    Transition(_S.AWAITING_HUMAN, _S.CONTAINED, "`holdfast node replace`", _OPERATOR),
    *(Transition(state, _S.CLOSED, "`holdfast incident close`", _OPERATOR) for state in _S if state is not _S.CLOSED),
)
"""Every way an incident may go. ``model/incidents/transitions.py`` checks each step against it and is the only code that sets a state."""
_LEGAL = frozenset((t.before, t.after, t.by) for t in TRANSITIONS)


def legal(before: IncidentState | None, after: IncidentState, by: MovedBy = MovedBy.HOLDFAST) -> bool:
    """Whether the table has this step."""
    return (before, after, by) in _LEGAL


@unknown_reads_as("unreadable", "nothing is done about its node until an operator closes it")
class IncidentKind(StrEnum):
    """Subject of an incident. Set when it is opened (its ``check`` may change); it changes only from ``silence`` to ``fault``, when the
    node reports again with a fault."""

    FAULT = "fault"
    """A fault of a node: reported by its agent, or found by an ordered check of a spare."""
    SILENCE = "silence"
    """A node whose agent does not report; two independent witnesses may pronounce it dead."""
    NOTICE = "notice"
    """The provider's announcement about a machine (interruption, maintenance, a failing status check)."""
    UNEXPLAINED = "unexplained"
    """A job that failed, and no finding says why."""
    HANG = "hang"
    """A job that makes no progress."""
    STRAGGLER = "straggler"
    """A part of a job that is slower than the others."""
    HELD_JOB = "held_job"
    """A job that Holdfast holds so that it does not start again: open for as long as it is held."""
    STALL = "stall"
    """Jobs that stopped making progress together, or on a file system that does not answer: no one of them is at fault."""
    PAIR = "pair"
    """A node of a failed or hung job that failed its pair probes."""
    SLURM_DRAIN = "slurm_drain"
    """A drain that Slurm itself set: a failed prolog, tasks that did not end, fewer GPUs than configured."""
    ADOPTED = "adopted"
    """A drain of Holdfast's that Slurm shows and the store does not know."""
    ORDERED = "ordered"
    """An operator's order to replace the node's machine: nothing is wrong with it that Holdfast knows of, unless a finding joins."""
    DISPUTED = "disputed"
    """A machine that two nodes claim, or that the provider shows as another node's: neither node's machine is touched."""
    UNREADABLE = "unreadable"
    """Another release's incident whose kind this one does not know, or a record that cannot be read: its node is held, nothing is
    done about it until an operator has closed the incident."""


NOT_OF_A_NODE = frozenset({IncidentKind.UNREADABLE, IncidentKind.DISPUTED})
"""Kinds that do not show whether the node is out of service."""
ABOUT_JOBS = frozenset(
    {
        IncidentKind.UNEXPLAINED,
        IncidentKind.HANG,
        IncidentKind.STRAGGLER,
        IncidentKind.HELD_JOB,
        IncidentKind.STALL,
    }
)
"""Kinds that are about a job and accuse no node: only watched, nothing is drained for them."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault of a node as known before its death; the fields are those of :class:`Incident`."""

    severity: Severity
    remedy: Remedy
    check: str
    headline: str
    fault_at: datetime
    gpu_minors: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class Incident:
    """One fault on one node from first evidence to closure."""

    id: str
    node: str
    instance_id: str
    """Machine that had the fault; empty where no provider knows it."""
    boot_id: str
    state: IncidentState
    """Current state. Only ``model/incidents/transitions.py`` sets it and its times."""
    severity: Severity
    remedy: Remedy
    check: str
    """Check of the leading finding, as it is shown. Decisions go by ``kind``."""
    headline: str
    """``gpu.xid 79 GPU-…: fell off the bus``: what the Slurm reason says."""
    fault_at: datetime
    """When the fault occurred that the headline names, by the earliest of the findings that show it. A milder finding of long before
    does not count, nor does the warning that it grew out of."""
    opened_at: datetime
    """When it was put on record; of a silent node or a suspected job that is before ``incident.opened``, the detection."""
    kind: IncidentKind = IncidentKind.FAULT
    code: str = ""
    """Code of the leading finding within its check (of ``gpu.xid`` the Xid's number); empty: it has none, or an older release wrote it."""
    gpu_minors: frozenset[int] | None = None
    """GPUs at fault; None: the node as a whole (or a GPU that cannot be placed, which means the same)."""
    state_since: datetime | None = None
    closed_at: datetime | None = None
    acknowledged: bool = False
    """An operator took it over: recorded, never acted upon."""
    dead: bool = False
    """Two independent witnesses agreed that the node is dead."""
    before_death: Fault | None = None
    """The fault that the node had when it was pronounced dead, to return to when it reports again; None: it had none."""
    rung: str = ""
    """Rung of the ladder that this attempt is on (:class:`holdfast.decisions.repair.ladder.Rung`); empty: none was begun."""
    machine: str = ""
    """Machine that has taken the node's name over in the course of this incident, in place; empty: ``instance_id`` still has it."""
    goes_at: datetime | None = None
    """When the provider takes the machine away (spot, maintenance, end of a capacity block); None: it does not."""
    notice: str = ""
    """Key of the provider's notice that it is about (:func:`holdfast.decisions.planned.notices.key_of`); empty: it is about an agent's
    evidence."""
    job: str = ""
    """Run of a job that failed or hangs without a finding, where that is what it is about, as text (:attr:`run`); empty: of none."""
    job_uid: int | None = None
    """Whose job that is; None: not known (incidents of before 0.1.0a3), or it is about none."""
    suspects: tuple[str, ...] = ()
    """That job's nodes, of which one may be at fault."""
    pair_probed: bool = False
    """The suspects are probed in pairs: of a job that failed from the start, of one that hung or was slow once its run is over."""
    stalled: tuple[str, ...] = ()
    """Runs of the jobs that stopped together, as text; those that continue or are over are not taken out."""
    odd: tuple[str, ...] | None = None
    """For a job that hangs: nodes with ranks that wait elsewhere than the others; None: its stacks have not been read."""
    repair_attempt: int = 0
    """Attempts of the ladder so far; part of the provider's token."""
    validated_at: datetime | None = None
    """Time when this attempt of the ladder validated its machine; None: not (yet)."""
    drain_lost_at: datetime | None = None
    """When it was seen that Slurm has lost the node's drain without an operator's resume; None: the drain is there, or is set again."""
    resumed_in_doubt: bool = False
    """Whether an operator resumed the node or slurmctld lost its drain is unknown: no running job is stopped for it."""
    by_program: bool = False
    """The leading finding is one that an error of a program, or what jobs use up, causes too: two of them may be the job's doing."""
    by_job: bool = False
    """The node is out of service, or to be, for what a user's job can cause (:attr:`users_doing`)."""
    by_order: bool = False
    """An operator's order opened it, and nothing that was found speaks against the node (:attr:`only_ordered`): no brake counts it,
    no fault waits for it."""
    order: MachineOrder | None = None
    """Operator's order to replace the node's machine that opened or directs it; None: there was none."""
    order_dropped: str = ""
    """Reason why that order is not carried out (any more), for people; empty: it is in force while the incident is open."""
    order_withdrawn: bool = False
    """An operator ended that order (closed its incident, put its node back): people are informed, and no one has to act."""
    earlier_orders: tuple[str, ...] = ()
    """Ids of the orders to replace that it has taken before that one: none is taken twice."""
    note: str = ""
    """Reason for this state, for people: shown on ``holdfast nodes`` and ``incident show``."""
    proposals: tuple[ProposalRecord, ...] = ()
    """Steps that waited for an operator's answer, the oldest first (mode propose)."""
    operated: int = 0
    """Number of changes by operators. The store counts; it refuses a change made from an older count (Stale)."""

    @property
    def open(self) -> bool:
        return self.state is not IncidentState.CLOSED

    @property
    def took_node_out(self) -> bool:
        """The node was seen out of service for it."""
        return self.state in OUT_OF_SERVICE and self.kind not in NOT_OF_A_NODE

    @property
    def run(self) -> JobRun | None:
        """The job run that it is about; None: it is about none."""
        return JobRun.parse(self.job)

    @property
    def follows_run(self) -> bool:
        """About a run that hangs, or has a slow part, and still runs as far as is known."""
        return self.kind in (IncidentKind.HANG, IncidentKind.STRAGGLER) and not self.pair_probed

    @property
    def hangs(self) -> bool:
        """About a job that hangs, and whose run is not over."""
        return self.kind is IncidentKind.HANG and self.follows_run

    @property
    def users_doing(self) -> bool:
        """A user's job can have caused it, and nothing else speaks against the node: it has a separate brake."""
        return self.by_job and not self.dead

    @property
    def ordered(self) -> MachineOrder | None:
        """The order to replace that is in force; None: there is none."""
        return self.order if self.open and not self.order_dropped else None

    def has_taken(self, order_id: str) -> bool:
        """Whether it carries this order out, or did before a newer one."""
        return order_id in self.earlier_orders or (self.order is not None and self.order.id == order_id)

    @property
    def only_ordered(self) -> bool:
        """An operator's will alone takes the node out: neither a finding nor its death speaks against it."""
        return self.by_order and not self.dead

    @property
    def fault(self) -> Fault:
        """Fault of the node."""
        return Fault(self.severity, self.remedy, self.check, self.headline, self.fault_at, self.gpu_minors)

    @property
    def serving_id(self) -> str:
        """The machine that has the node's name now, as far as the incident knows; empty: no provider knows it."""
        return self.machine or self.instance_id


@unknown_reads_as("left_alone", "the job is neither stopped nor started by Holdfast for this fault")
class RecoveryPhase(StrEnum):
    """Progress of the recovery of one job run."""

    SAVING = "saving"
    """Its machine goes at a known time: the job was asked to save; it is stopped as soon as it has, or when the time is short."""
    AWAITING_CONSENT = "awaiting_consent"
    """The job did not opt in, or is suspended: it is left running, its owner was notified; it is recovered once it fails."""
    WAITING = "waiting"
    """A brake or missing nodes hold the recovery; the note says why."""
    STOPPING = "stopping"
    """Its nodes are being held and the requeue (or DOWN) was ordered."""
    RESTARTING = "restarting"
    """Slurm has requeued it (Restarts grew); it is to be released and to start."""
    RUNNING = "running"
    """Running again on other nodes; the first report of the job itself is awaited."""
    RESUMED = "resumed"
    """The job reported the step from which it resumed, or reports no checkpoint. Final."""
    LEFT_ALONE = "left_alone"
    """It cannot be requeued; its owner was notified. Final."""
    HELD = "held"
    """Restart budget spent or the job itself is the suspect: held with a reason. Final."""
    GONE = "gone"
    """It ended or was cancelled meanwhile. Final."""


@unknown_reads_as(None, "the brake on stopped jobs counts the recovery")
class Ground(StrEnum):
    """Ground for stopping a job's run, or that it is over already."""

    FAILED = "failed"
    """It has already failed: nothing is left to stop."""
    NODE_LOST = "node_lost"
    """Its node is dead: nothing is left to stop."""
    CHECKPOINT = "checkpoint"
    """It registered a checkpoint directory."""
    OPT_IN = "opt_in"
    """Its user asked for it: ``sbatch --comment=holdfast``."""
    ELASTIC = "elastic"
    """It is a group of an elastic job."""
    PARTITION = "partition"
    """The site's policy for its partition (``[jobs] consent_partitions``)."""
    QOS = "qos"
    """The site's policy for its QOS (``[jobs] consent_qos``)."""


def down_group(incident_id: str) -> str:
    """Group of the steps that a dead node's DOWN belongs to."""
    return f"down/{incident_id}"


_OVER = frozenset({Ground.FAILED, Ground.NODE_LOST})

FINAL_PHASES = frozenset({RecoveryPhase.RESUMED, RecoveryPhase.LEFT_ALONE, RecoveryPhase.HELD, RecoveryPhase.GONE})


@dataclass(frozen=True, slots=True)
class Recovery:
    """The way of one job run back to work. (job, restarts_before) names it: one recovery per run, whatever the incidents."""

    job: JobKey
    restarts_before: int
    """Restarts of the run that was affected; the recovered run has one more."""
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
    """The ground in words, for people: ``registered checkpoint``, ``policy of partition gpu`` … Decisions use ``ground``."""
    ground: Ground | None = None
    """Ground for stopping it; None: not decided yet, or a ground of another release that this one does not know."""
    via_down: bool = False
    """Setting the dead node DOWN is the requeue; none is sent in addition."""
    spare: str | None = None
    hold: str | None = None
    """Name of the reservation that keeps its nodes; None: none was made."""
    checkpoint_step: int | None = None
    """Newest complete checkpoint known when it was stopped."""
    checkpoint_at: datetime | None = None
    """When that was written; None: not known."""
    checkpoint_known: bool = False
    """The run had saved nothing newer than that (where both are None: nothing). False: nothing is known of it."""
    started_at: datetime | None = None
    """When the run that was affected had started; None: not known."""
    stopped_step: int | None = None
    """Last step that the job had reported."""
    stopped_estimated: bool = False
    """It had reported none: the step is reckoned from the times of its checkpoints."""
    resumed_step: int | None = None
    exclusions_known: bool = True
    """False: the job's record could not be read when the recovery began. ``excluded_before`` is read once the job waits in the queue,
    before anything is written over it."""
    excluded_added: tuple[str, ...] = ()
    """What the job's exclusions hold in addition to the user's own, as of its start and again when the run started; taken back when the job
    is queued again and the node serves (``decisions/repair/readmit.py``)."""
    in_service_only: bool = False
    """Slurm found that no node can run the job with every suspect node excluded: from then on those that Slurm itself keeps free, as they
    are drained or DOWN, are not excluded."""
    suspect: bool = False
    """Held because the job itself is the suspect: the nodes that it affected are validated and released, not repaired."""
    series: tuple[str, ...] = ()
    """What its job shares with others that run the same program (:func:`holdfast.decisions.job_ends.series.series_of`)."""
    released_at: datetime | None = None
    """When the job, held for it, was seen to be released; None: it was not held, or is still, or has ended since."""
    next_run_ended: str = ""
    """Slurm's state in which the next run ended before it was back at work, whether it started or not (``REQUEUED``: it was queued again);
    empty: it did not."""
    note: str = ""

    @property
    def id(self) -> str:
        return self.run.text

    @property
    def run(self) -> JobRun:
        """The run that was affected."""
        return JobRun.of(self.job, self.restarts_before)

    @property
    def group(self) -> str:
        """Its steps are allowed or withheld together, with those of all recoveries that wait for the same node's DOWN."""
        return down_group(self.incident_id) if self.via_down else self.id

    @property
    def final(self) -> bool:
        return self.phase in FINAL_PHASES

    @property
    def stops_running_job(self) -> bool:
        """Whether a running job is stopped for it, which the job-stop brake counts. True where the ground is not known."""
        return self.ground not in _OVER
