"""Notices to people: how urgent one is, what it is about, and the messages that stand for them. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from holdfast_checks.words import unknown_reads_as


@unknown_reads_as("needs_somebody", "the notice goes to the addresses of those who are called")
class NoticeLevel(StrEnum):
    """Urgency of a notice."""

    NEEDS_SOMEBODY = "needs_somebody"
    """An operator has to act; nothing holds it back."""
    HEALED = "healed"
    """A fault happened and was repaired without an operator."""
    DIGEST = "digest"
    """Summary of a day."""


LEVEL_WORDS: Mapping[NoticeLevel, str] = {
    NoticeLevel.NEEDS_SOMEBODY: "action needed",
    NoticeLevel.HEALED: "happened and healed",
    NoticeLevel.DIGEST: "daily summary",
}
"""How a level is shown to people."""


@unknown_reads_as("other", "its message names the list of runbooks instead of one")
class Topic(StrEnum):
    """Subject of a notice; each has a runbook (:data:`RUNBOOKS`)."""

    AWAITING_HUMAN = "awaiting_human"
    NOT_IN_SLURM = "not_in_slurm"
    CANNOT_FENCE = "cannot_fence"
    NODES_DO_NOT_REPORT = "nodes_do_not_report"
    VERDICTS_FROZEN = "verdicts_frozen"
    STAYS_DOWN = "stays_down"
    TWO_NODES_ONE_MACHINE = "two_nodes_one_machine"
    NOBODYS_MACHINE = "nobodys_machine"
    NO_MACHINE = "no_machine"
    CAPACITY_ENDS = "capacity_ends"
    SPARES_SHORT = "spares_short"
    MAINTENANCE_WINDOW = "maintenance_window"
    ORDER_DROPPED = "order_dropped"
    """An operator's order to replace a machine that is not carried out."""
    ORDER_WAITS = "order_waits"
    """A node that is drained for such an order, which a brake or a budget holds up."""
    STEP_FAILING = "step_failing"
    BRAKE = "brake"
    BUDGET_SPENT = "budget_spent"
    """The next step at a node has waited long for a budget."""
    PROPOSAL = "proposal"
    JOB_HANGS = "job_hangs"
    HANGS_LIMITED = "hangs_limited"
    JOB_STALL = "job_stall"
    FILE_SYSTEM = "file_system"
    JOB_HELD = "job_held"
    JOB_RECOVERED = "job_recovered"
    """A job runs again; to its owner."""
    JOB_NOT_BACK = "job_not_back"
    """A job was queued again, and its next run ended before it was back at work; to its owner."""
    FAILED_JOBS = "failed_jobs"
    """Jobs that failed, and pair probes that accuse no single node."""
    HEALED = "healed"
    DIGEST = "digest"
    SEVERAL = "several"
    """Several topics in one message, when more messages are due than may be sent."""
    TEST = "test"
    OTHER = "other"
    """Recorded by an older release, which named no topic."""


RUNBOOKS: Mapping[Topic, str] = {
    Topic.AWAITING_HUMAN: "runbooks/awaiting-human.md",
    Topic.NOT_IN_SLURM: "runbooks/awaiting-human.md",
    Topic.CANNOT_FENCE: "runbooks/cannot-fence.md",
    Topic.NODES_DO_NOT_REPORT: "runbooks/nodes-do-not-report.md",
    Topic.VERDICTS_FROZEN: "dead-nodes.md",
    Topic.STAYS_DOWN: "runbooks/stays-down.md",
    Topic.TWO_NODES_ONE_MACHINE: "runbooks/two-nodes-one-machine.md",
    Topic.NOBODYS_MACHINE: "runbooks/nobodys-machine.md",
    Topic.NO_MACHINE: "runbooks/no-machine.md",
    Topic.CAPACITY_ENDS: "runbooks/capacity-ends.md",
    Topic.SPARES_SHORT: "runbooks/spares-short.md",
    Topic.MAINTENANCE_WINDOW: "maintenance.md",
    Topic.ORDER_DROPPED: "repair.md",
    Topic.ORDER_WAITS: "repair.md",
    Topic.STEP_FAILING: "runbooks/step-failing.md",
    Topic.BRAKE: "runbooks/brake.md",
    Topic.BUDGET_SPENT: "runbooks/budget-spent.md",
    Topic.PROPOSAL: "runbooks/proposal-waits.md",
    Topic.JOB_HANGS: "runbooks/job-hangs.md",
    Topic.HANGS_LIMITED: "runbooks/job-hangs.md",
    Topic.JOB_STALL: "runbooks/job-stall.md",
    Topic.FILE_SYSTEM: "runbooks/job-stall.md",
    Topic.JOB_HELD: "runbooks/job-held.md",
    Topic.JOB_RECOVERED: "recovery.md",
    Topic.JOB_NOT_BACK: "recovery.md",
    Topic.FAILED_JOBS: "recovery.md",
    Topic.HEALED: "notifications.md",
    Topic.DIGEST: "notifications.md",
    Topic.SEVERAL: "runbooks/README.md",
    Topic.TEST: "notifications.md",
    Topic.OTHER: "runbooks/README.md",
}
"""Page below ``docs/`` that says what to do."""


@dataclass(frozen=True, slots=True)
class Matter:
    """One thing that people are notified about: a topic and what it is about. Not repeated while it is open."""

    topic: Topic
    target: str
    """What distinguishes it from other matters of the topic."""
    subject: str
    """One line, as the decision wrote it."""
    level: NoticeLevel = NoticeLevel.NEEDS_SOMEBODY
    body: str = ""
    """Further lines; empty where a storm left no room for them."""
    incident_id: str = ""
    """Empty: it is about no incident."""
    nodes: tuple[str, ...] = ()
    since: datetime | None = None
    """When it was decided."""
    condition: str = ""
    """Key of the condition that it is about (:class:`holdfast.model.conditions.LastingCondition`); empty: none that is followed."""


@dataclass(frozen=True, slots=True)
class OpenMatter:
    """A matter that people were notified of and that is not known to be over."""

    matter: Matter
    told_at: datetime
    message_id: str


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent: one or several matters of a topic."""

    id: str
    at: datetime
    level: NoticeLevel
    topic: Topic
    subject: str
    body: str
    stands_for: int = 1
    """How many matters it is about."""
    over: bool = False
    """It says that they are over."""
    matters: tuple[Matter, ...] = ()
    """The first of them (:data:`MOST_MATTERS`), without their bodies."""

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes that it names; empty: it is about none in particular."""
        return frozenset(name for matter in self.matters for name in matter.nodes)


NOTE = "notices"
"""Note of the store that holds :class:`NoticeState`."""
MOST_MATTERS = 200
"""Most matters that a message carries with it; the others are counted."""


@dataclass(frozen=True, slots=True)
class PendingAddress:
    """An address that has not taken a message yet."""

    address: str
    """Its name, without secrets."""
    next_at: datetime
    attempts: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """A message that an address has not taken yet."""

    message: Message
    waits: tuple[PendingAddress, ...]


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was made within the last hour: the rate limit counts these."""

    at: datetime
    topic: Topic
    level: NoticeLevel
    over: bool = False


@dataclass(frozen=True, slots=True)
class NoticeState:
    """State of the notices, kept in the store: a restart repeats none and loses none."""

    waiting: tuple[Matter, ...] = ()
    """Decided, not in a message yet."""
    ended: tuple[Matter, ...] = ()
    """Over, and people do not know it yet."""
    open: tuple[OpenMatter, ...] = ()
    outbox: tuple[PendingMessage, ...] = ()
    sent: tuple[Sent, ...] = ()
    left_out: int = 0
    """Matters that were dropped because too many waited; the next message counts them."""
    healed_until: datetime | None = None
    """Incidents closed by then have been dealt with; None: none has."""
    digest_at: datetime | None = None
    """When the last daily summary was made."""
    made: int = 0
    """Messages made so far: the next one's number."""
    totals: Mapping[str, int] = field(default_factory=dict)
    """``LEVEL/OUTCOME`` → how often, since the store was made."""


@dataclass(frozen=True, slots=True)
class NoticePolicy:
    """Limits on messages to people."""

    group_s: float = 60.0
    """After a message, the next one of its topic waits this long; then twice as long, up to ten minutes."""
    repeat_s: float = 86_400.0
    """A matter that is still open is repeated after this long; 0: never."""
    most_per_hour: int = 30
    """With more messages of a level within an hour, those that follow share one message."""
