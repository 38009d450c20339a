"""Actions and intents: every external step, as data, with its reason. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, get_args

from holdfast.model.actions.steps import Step, StepKey
from holdfast.model.event import Event, EventKind
from holdfast.model.notice import NoticeLevel, Topic
from holdfast.model.operators.maintenance import KeepWindow
from holdfast.model.operators.node_orders import DrainForOperator, ReleaseForOperator
from holdfast.model.policies.resizing import DelayStart, SetThrottle
from holdfast.model.slurm.cluster import JobKey, NodeReason
from holdfast.model.target import OnJob, OnMachine, OnNode, Target
from holdfast_checks.words import unknown_reads_as


@dataclass(frozen=True, slots=True)
class Drain(OnNode):
    """Take the node out of scheduling; jobs on it continue."""

    node: str
    reason: str
    over: NodeReason | None = None
    """Slurm's own drain that it takes over, if it is still this very one; None: it takes over none."""


@dataclass(frozen=True, slots=True)
class TakeOverDrain(Drain):
    """Drain the node in the place of an operator's drain, which another order names word for word: Holdfast takes it back from then on.

    ``over`` is that drain; if Slurm shows another one by now, nothing is done."""


@dataclass(frozen=True, slots=True)
class SetDown(OnNode):
    """Declare a dead node DOWN and DRAIN; Slurm then kills and requeues its jobs."""

    node: str
    reason: str
    jobs: tuple[int, ...] | None = None
    """Jobs that held the node when it was decided: they may be taken from it, one that came since may not. None: not known."""
    node_dead: bool = False
    """Only the death of the node calls for it: dropped when the node reports again. Tasks stuck on a living node call for a DOWN, too."""


@dataclass(frozen=True, slots=True)
class Undrain(OnNode):
    """Put a node back; only if its state, reason, user and time are still what ``mark`` says."""

    node: str
    mark: str
    """The reason that Holdfast stored when it drained the node."""
    machine: str = ""
    """The machine that has taken the node's name meanwhile, for Slurm's record; empty: it is the former one."""


@dataclass(frozen=True, slots=True)
class HoldNodes:
    """Keep these nodes for a job that is about to be stopped."""

    reservation: str
    nodes: tuple[str, ...]
    user: str
    job: JobKey
    duration_s: int

    @property
    def target(self) -> Target:
        return Target(job=self.job, reservation=self.reservation)


@dataclass(frozen=True, slots=True)
class PromoteSpare(OnNode):
    """Take a node out of the spare pool, into a job's hold where it has one."""

    node: str
    into: str | None


@dataclass(frozen=True, slots=True)
class Requeue(OnJob):
    """Stop the job and queue it again under the same id. Done when Restarts is greater than ``restarts``."""

    job: JobKey
    restarts: int


@dataclass(frozen=True, slots=True)
class Release(OnJob):
    """Let the requeued job start now: exclusions set, reservation set, the BeginTime hold cleared."""

    job: JobKey
    restarts: int
    """Restarts that the job must show now: the run to be released."""
    reservation: str | None
    exclude: tuple[str, ...]
    """All of its exclusions: the user's own and the suspects."""
    suspects: tuple[str, ...] = ()
    """Nodes that every component of a heterogeneous job has to stay off, whatever the user excluded for each."""
    nodes: int | None = None
    """Number of nodes it starts on; None: its size is unchanged."""


@dataclass(frozen=True, slots=True)
class AllowNodes(OnJob):
    """Take nodes that serve again out of a pending job's exclusions, where Holdfast had put them."""

    job: JobKey
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DropHold:
    """Delete the reservation that kept a job's nodes."""

    reservation: str

    @property
    def target(self) -> Target:
        return Target(reservation=self.reservation)


@dataclass(frozen=True, slots=True)
class HoldJob(OnJob):
    """Stop following a job: hold it with a reason its owner can read."""

    job: JobKey
    reason: str


@dataclass(frozen=True, slots=True)
class TellOwner(OnJob):
    """Leave the job's owner a note where Slurm shows it (AdminComment), or take it back."""

    job: JobKey
    text: str
    """Empty: no note is left there."""
    instead_of: str | None = None
    """The note that it takes the place of; any other stays. None: of whatever is there."""


@dataclass(frozen=True, slots=True)
class Launch(OnNode):
    """Launch the machine that will take over the node's name. The token makes it happen once."""

    node: str
    token: str
    instead_of: str = ""
    """Machine that it is to replace: not done once the provider shows another one as the node's. Empty: no provider knows it."""


@dataclass(frozen=True, slots=True)
class Terminate(OnMachine):
    """End a machine at the provider; what serves a node only once it is drained and free of jobs, or to fence a dead one."""

    instance_id: str
    node: str
    fence: bool = False
    """The node is dead and its old run must be kept from writing: done only when the power is confirmed off. Without it, the machine
    must be drained and free of jobs, or not be the one that serves the node."""
    slurmd_started_at: datetime | None = None
    """Start of the machine's slurmd as Slurm showed it when this was planned: a later one is the new machine's."""


@dataclass(frozen=True, slots=True)
class Assign(OnMachine):
    """Hand the node's name to the validated machine."""

    instance_id: str
    node: str


@dataclass(frozen=True, slots=True)
class Replace(OnMachine):
    """Exchange the machine behind the node's name in place; only once the node is drained by us and free of jobs (or dead)."""

    node: str
    instance_id: str
    """The machine that goes."""
    boot_id: str
    """Its boot as last reported: bare metal may come back under the same id."""
    token: str
    gpu_uuids: frozenset[str] = frozenset()
    """Its GPUs: whether the same hardware came back."""
    slurmd_started_at: datetime | None = None
    """As in :class:`Terminate`."""


@dataclass(frozen=True, slots=True)
class Reboot(OnMachine):
    """Reboot the node; only once it is drained by us and free of jobs (or dead). Done when the order was taken."""

    node: str
    instance_id: str
    boot_id: str
    """The boot that is to end: another one shows that it is done."""
    token: str
    via_slurm: bool
    """``scontrol reboot``, so that Slurm expects it; else the provider."""
    slurmd_started_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class StopStart(OnMachine):
    """Stop the machine and start it on another host, under the same instance id; only as a reboot."""

    node: str
    instance_id: str
    boot_id: str
    token: str
    gpu_uuids: frozenset[str] = frozenset()
    slurmd_started_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ReportFault(OnMachine):
    """Report a confirmed hardware fault to the provider. Changes nothing."""

    node: str
    instance_id: str
    since: datetime
    text: str


@dataclass(frozen=True, slots=True)
class CheckInstance(OnMachine):
    """Ask the provider how it sees the machine: a witness that does not share a path with the agents. Changes nothing."""

    instance_id: str
    node: str


@dataclass(frozen=True, slots=True)
class AdoptSpare(OnNode):
    """Put the node into the spare pool (before it is undrained, so that no job slips in)."""

    node: str


@unknown_reads_as(None, "an agent refuses the order as unsupported; a stored order counts as an unknown action")
class Verb(StrEnum):
    """Everything that an agent can be ordered to do. There is no "run this"."""

    VALIDATE = "validate"
    EVIDENCE = "collect_evidence"
    END_STEP = "end_leftover_step"
    END_JOB = "end_stuck_job"
    PROBE_PEER = "probe_peer"
    SAVE = "ask_job_to_save"
    RESET_GPU = "reset_gpu"
    PROBE_PAIR = "probe_pair"
    """One side of a bandwidth and correctness test between two nodes."""
    OUTPUT = "read_job_output"
    """The last lines of what a job wrote, read as its user: which causes of its end they name."""
    CHECK = "run_checks"
    """Run named checks now (also active ones) on a node that no job holds; the outcome names what is bad."""
    LEAVE = "ask_group_to_leave"
    """Ask a replica group, through its launcher on the node, to finish its step, leave its rendezvous and exit with 85."""
    STACKS = "collect_stacks"
    """Stacks of a job's Python processes on this node, one each, read from outside."""
    SURVEY = "survey_checkpoints"
    """Read a job's registered directory with its user's rights; the newest complete checkpoints are reported separately."""
    JOB_NOTE = "leave_job_note"
    """Add a short text to a file alongside a job's output, written with its user's rights: why the job was stopped, and where it is."""


@dataclass(frozen=True, slots=True)
class SendOrder(OnMachine):
    """An order to one agent: carried out at most once, only in this boot of this machine, only before it expires."""

    node: str
    instance_id: str
    boot_id: str
    """The boot that it is meant for; empty: any boot of that machine."""
    verb: Verb
    expires_s: float
    args: Mapping[str, Any] = field(default_factory=dict)
    """Facts that justify it, which the agent checks on the node itself."""


@dataclass(frozen=True, slots=True)
class Notify:
    """Notify an operator, in the log and by the addresses of ``[notify]``."""

    subject: str
    body: str
    level: NoticeLevel = NoticeLevel.NEEDS_SOMEBODY
    topic: Topic = Topic.OTHER
    """Default: what an older release planned."""
    nodes: tuple[str, ...] = ()
    """Nodes that it is about; empty: its incident's."""
    condition: str = ""
    """Key of the condition that it is about (:class:`holdfast.model.conditions.LastingCondition`); empty: of none, or its incident's."""
    user: str = ""
    """Owner of the job that it is about, who gets it by ``[notify.owners]``; empty: it is for operators."""

    @property
    def target(self) -> Target:
        return Target(subject=self.subject)


@dataclass(frozen=True, slots=True)
class UnknownAction:
    """A step of another release that this one does not know. Never carried out; shown under the name that it has."""

    kind: str
    """Name of the action's class in the release that planned it."""
    document: Mapping[str, Any]
    """Stored form of the action: written back unchanged."""

    @property
    def target(self) -> Target:
        """The node, where it names one."""
        node = self.document.get("node")
        return Target(node=node if isinstance(node, str) else None)


Action = (
    Drain
    | TakeOverDrain
    | SetDown
    | Undrain
    | HoldNodes
    | PromoteSpare
    | Requeue
    | Release
    | DelayStart
    | SetThrottle
    | AllowNodes
    | DropHold
    | HoldJob
    | TellOwner
    | Launch
    | Terminate
    | Assign
    | Replace
    | Reboot
    | StopStart
    | ReportFault
    | CheckInstance
    | AdoptSpare
    | KeepWindow
    | DrainForOperator
    | ReleaseForOperator
    | SendOrder
    | Notify
    | UnknownAction
)

ACTION_TYPES: Mapping[str, type[Action]] = {
    each.__name__: each for each in get_args(Action) if each is not UnknownAction
}


@unknown_reads_as("failed", "the step is never carried out, and never repeated")
class IntentState(StrEnum):
    PLANNED = "planned"
    """In the store, not started."""
    STARTED = "started"
    """Started, outcome unknown: after a crash the external system is queried before anything is repeated."""
    DONE = "done"
    FAILED = "failed"
    """It did not happen; ``retryable`` says whether another attempt makes sense."""
    REFUSED = "refused"
    """The actor checked again and the facts had changed (an operator's drain, a newer run): correctly not done."""
    WITHHELD = "withheld"
    """A brake, a pause, observe mode or an accept that is not there: recorded as what would have been done."""


SETTLED = frozenset({IntentState.DONE, IntentState.FAILED, IntentState.REFUSED, IntentState.WITHHELD})


LIVES = "lives"
"""Key in a failed step's result: right before the step the machine was seen alive, so it was not started."""
NEVER_BEGUN = "never_begun"
"""Field of the result of a step that expired before anything took it."""


@dataclass(frozen=True, slots=True)
class Intent:
    """An action that was decided: the intent. The key is unique for ever: the same step cannot be planned twice."""

    key: str
    """``INCIDENT/kind/target/attempt``."""
    incident_id: str
    action: Action
    reason: str
    fence: int
    """Fencing number of the leader that planned it; the actor refuses one that is not the lease's own."""
    state: IntentState
    planned_at: datetime
    order: int = 0
    """Intents of one incident are carried out in this order."""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    retryable: bool = False
    outcome: str = ""
    """One line."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """Results that later steps need: instance id, stored drain mark, evidence."""

    @property
    def kind(self) -> str:
        """Name of the action's class."""
        return self.action.kind if isinstance(self.action, UnknownAction) else type(self.action).__name__

    @property
    def never_begun(self) -> bool:
        """It expired before anything took it: nothing was tried, and nothing has failed."""
        unasked = self.state is IntentState.FAILED and self.retryable and self.started_at is None
        return unasked and self.result.get(NEVER_BEGUN) is True

    @property
    def is_attempt(self) -> bool:
        """Whether it counts as an attempt of its step: it was neither withheld nor left to expire unbegun."""
        return self.state is not IntentState.WITHHELD and not self.never_begun

    @property
    def step(self) -> Step:
        """Raises ValueError for a key that is none."""
        return StepKey.parse(self.key).step

    @property
    def attempt(self) -> int:
        """Counts from 1; 0 for what was withheld. Raises ValueError for a key that is none."""
        return StepKey.parse(self.key).attempt

    @property
    def settled(self) -> bool:
        return self.state in SETTLED


@dataclass(frozen=True, slots=True)
class Proposal:
    """Action that ``decide`` proposes, before the guard has checked it."""

    incident_id: str
    step: Step
    """With the attempt's number it becomes the intent's key."""
    action: Action
    reason: str
    stops_running_job: bool = False
    """Counted by the job-stop brake: a running job is stopped because of a finding."""
    group: str = ""
    """Proposals of one group are allowed or withheld together (hold, spare and requeue of one recovery)."""
    order: int = 0


def action_event(intent: Intent, kind: EventKind, at: datetime, text: str) -> Event:
    """The event of one step of an intent; its detail names the key, the action's kind, the step's target, and an order's verb."""
    detail = {"key": intent.key, "kind": intent.kind, "target": intent.step.target}
    if isinstance(intent.action, SendOrder):
        detail["verb"] = intent.action.verb.value
    target = intent.action.target
    job = target.job.text if target.job is not None else None
    return Event(at, kind, intent.incident_id, target.node, job, text, detail)
