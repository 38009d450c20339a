"""Protocols of everything outside the core: Slurm, provider, notifier, quorum service, store.

Adapters live in ``slurm/``, ``providers/``, ``store/``; twins obey one contract suite.

Every call is synchronous and bounded: an adapter has its own deadline and raises
:class:`~holdfast.model.errors.Unavailable` when it passes. Calls that change something are idempotent or say so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from holdfast.model.actions.action import Intent, IntentState
from holdfast.model.actions.budgets import BudgetExtension
from holdfast.model.agents.report import Report
from holdfast.model.background import Topology
from holdfast.model.book import Book, Change, NodeMark, NodeRecord
from holdfast.model.elastic_jobs.room_names import KnownRoom
from holdfast.model.elastic_jobs.rooms import OpenRoom, RoomRecord, RoomRules, RoomView
from holdfast.model.event import Event, EventKind
from holdfast.model.incidents.incident import Incident, Recovery
from holdfast.model.jobs.job_ends import JobEnd
from holdfast.model.machine import Instance, Notice, ProviderCan, ProviderView
from holdfast.model.notice import Matter, Message
from holdfast.model.operators.maintenance import Window
from holdfast.model.operators.node_orders import NodeOrder
from holdfast.model.operators.suppression import Suppression
from holdfast.model.slurm.cluster import ClusterView, Job, Node, Partition, Reservation

_Verb = TypeVar("_Verb", bound=Callable[..., object])


def reads(verb: _Verb) -> _Verb:
    """Decorator for calls that change nothing outside. All others are checked before they run (``actor/lease_guard.py``)."""
    vars(verb)["reads"] = True
    return verb


def reading(port: type) -> frozenset[str]:
    """Names of a port's methods and properties with this mark."""
    found = ((name, each.fget if isinstance(each, property) else each) for name, each in vars(port).items())
    return frozenset(name for name, each in found if getattr(each, "reads", False))


class Clock(Protocol):
    """Clock, injected everywhere so that tests control time."""

    def now(self) -> datetime:
        """Wall time, UTC-aware."""
        ...

    def monotonic_s(self) -> float:
        """CLOCK_MONOTONIC in seconds."""
        ...


SLURM_CLIENTS = ("auto", "commands", "pyslurm")
"""Twins of the port to Slurm, by name; ``auto`` chooses one."""


class Scheduler(Protocol):
    """Slurm. Reading needs no rights; the verbs need SlurmUser, root or an operator."""

    @reads
    def view(self) -> ClusterView:
        """All nodes, jobs (with the GPUs they hold) and reservations, read now."""
        ...

    @reads
    def node(self, name: str) -> Node:
        """One node, read now. Raises NotFound."""
        ...

    @reads
    def job(self, job_id: int) -> Job:
        """One job, read now. Raises NotFound once Slurm has forgotten it."""
        ...

    @reads
    def components(self, job_id: int) -> tuple[Job, ...]:
        """The records of one job, read now: of a heterogeneous job's leader those of all components in the order of their ids, of
        any other job its own alone. Raises NotFound."""
        ...

    @reads
    def jobs_on(self, node: str) -> tuple[Job, ...]:
        """Jobs that hold one node, COMPLETING ones too, read now, in the order of their ids. Reads no other node and no other job.

        Raises NotFound for an unknown node."""
        ...

    @reads
    def all_nodes(self) -> dict[str, Node]:
        """All nodes by name, read now; without jobs and reservations, which cost most of a :meth:`view`."""
        ...

    @reads
    def all_reservations(self) -> dict[str, Reservation]:
        """All reservations by name, read now."""
        ...

    @reads
    def version(self) -> str:
        """Slurm's release, such as ``22.05.8``."""
        ...

    @reads
    def config(self) -> dict[str, str]:
        """slurmctld's running configuration, key → value as ``scontrol show config`` prints them."""
        ...

    @reads
    def partitions(self) -> tuple[Partition, ...]:
        """All partitions that this user may see."""
        ...

    @reads
    def topology(self) -> Topology:
        """The tree of switches (or blocks) above each node, as slurmctld has it; empty where none is configured."""
        ...

    def drain(self, node: str, reason: str) -> None:
        """Set DRAIN with the reason. Running jobs continue. The caller has checked that no other reason is overwritten."""
        ...

    def undrain(self, node: str) -> None:
        """Clear DRAIN, by UNDRAIN; of a node that is DOWN also that, by RESUME. A reboot or power-down that others began continues. The
        caller has verified that Holdfast set the drain."""
        ...

    def set_instance_id(self, node: str, instance_id: str) -> None:
        """Record which cloud instance serves the node (InstanceId of ``scontrol show node``). Nothing, where the release has no such field
        (22.05; 24.11 has it)."""
        ...

    def set_down(self, node: str, reason: str, *, drain: bool = True) -> None:
        """Set DOWN *and* DRAIN. Slurm kills and requeues the node's jobs at once: no separate requeue is sent.

        Without ``drain``: DOWN only, for a node that is held in another way."""
        ...

    def power_down(self, node: str, reason: str) -> None:
        """Have Slurm power the node down as soon as no job is on it (its SuspendProgram). It takes no new job until then.

        Repeating it meanwhile is a success. Raises Rejected where Slurm's power saving is off, NotFound."""
        ...

    def power_up(self, node: str) -> None:
        """Have Slurm power a node up that is POWERED_DOWN (its ResumeProgram). Slurm ignores it while the node is powering down."""
        ...

    def requeue(self, job_id: int) -> None:
        """Requeue a running or just finished batch job under the same id. Not idempotent: compare Restarts first."""
        ...

    def release(self, job_id: int, *, reservation: str | None = None) -> None:
        """Let a requeued job start now: clear the BeginTime hold, optionally inside a reservation. A heterogeneous job is
        released, requeued, held and commented as a whole, by its leader's id.

        Raises Rejected while the job is still COMPLETING (try again), NotFound when it is gone."""
        ...

    def delay_start(self, job_id: int, delay_s: int) -> None:
        """Delay a pending job's start by this many seconds, unless it is released earlier. Slurm ends the delay.

        For the record of an array's pending elements: delays all of them. Raises Rejected for a running job."""
        ...

    def set_array_throttle(self, array_job_id: int, most: int | None) -> None:
        """Limit how many elements of the array run at a time, at least 1; None: no limit. Running ones continue."""
        ...

    def hold(self, job_id: int, reason: str) -> None:
        """Hold a pending job (JobHeldUser), or requeue-hold a running or failed one, with a comment its owner can read.

        The owner may release it. Raises Rejected where Slurm does: a failed job of ``sbatch --no-requeue``."""
        ...

    def set_excluded_nodes(self, job_id: int, nodes: tuple[str, ...]) -> None:
        """Replace the ExcNodeList of a pending job; of one component alone where it is a heterogeneous job's."""
        ...

    def set_num_nodes(self, job_id: int, nodes: int) -> None:
        """Make a pending job start on exactly this many nodes, with as many tasks on each as before. Raises Rejected where Slurm does."""
        ...

    def set_job_reservation(self, job_id: int, reservation: str | None) -> None:
        """Put a job into a reservation, or take it out of any with None."""
        ...

    def tell_owner(self, job_id: int, text: str) -> None:
        """Set the job's AdminComment to one line for its owner (``scontrol show job``). Empty: remove it."""
        ...

    def create_reservation(
        self,
        name: str,
        nodes: tuple[str, ...],
        *,
        users: tuple[str, ...],
        duration_s: int | None,
        hold_for_job: bool = False,
        over: str | None = None,
        maint: bool = False,
    ) -> None:
        """Create a reservation that starts now on nodes that may be busy. ``duration_s`` None: without end.

        ``hold_for_job``: keeps a stopped job's nodes for its restart; a job that started in it outlives it.
        ``over``: for a hold, the only other reservation that may share nodes with it; a job in the hold starts on no node that any
        further reservation keeps. None: it may overlap any reservation, and a job in it ignores those.
        ``maint``: for maintenance (flag MAINT): no job starts there, whatever else keeps the nodes; running jobs continue.
        Creating the same again is a success; raises Rejected when one of that name exists with other nodes."""
        ...

    def set_reservation_nodes(self, name: str, nodes: tuple[str, ...]) -> None:
        """Replace the node list. Raises NotFound. An empty list deletes the reservation."""
        ...

    def delete_reservation(self, name: str) -> None:
        """Delete it; succeeds if it does not exist. Jobs that started in it continue."""
        ...

    @reads
    def reservation(self, name: str) -> Reservation:
        """One reservation, read now. Raises NotFound."""
        ...

    def reboot(self, node: str, reason: str | None) -> None:
        """Ask Slurm to reboot a drained node as soon as it is idle, so that the reboot is expected. ``reason``: replaces the
        drain's reason at once, with a new time; None: keep it."""
        ...


class Provider(Protocol):
    """Provider of machines: reboots, replaces and launches them. Changes are idempotent by token: a repeated token acts once.

    The caller proves which node the machine serves (``decisions/machines/machine_proof.py``); :meth:`replace` checks it again."""

    @property
    @reads
    def name(self) -> str: ...

    @property
    @reads
    def can(self) -> ProviderCan:
        """Read again before each round of decisions: it may change while the process runs."""
        ...

    @reads
    def repairs_itself(self) -> bool:
        """Whether the provider currently replaces broken machines automatically (HyperPod's NodeRecovery). Raises Unavailable."""
        ...

    @reads
    def notices(self) -> tuple[Notice, ...]:
        """The provider's notices about live machines of this cluster: failed status checks, planned interruptions.

        Empty for a provider without such notices. Raises Unavailable, NotPermitted."""
        ...

    @reads
    def on_trial(self) -> tuple[Instance, ...]:
        """Live machines launched for a replacement (``launch``) that serve no node yet, by the provider's own record (tags)."""
        ...

    @reads
    def instance_of(self, node: str) -> Instance | None:
        """The live machine that serves the node now (not one being launched for a replacement); None: not known."""
        ...

    @reads
    def instance(self, instance_id: str) -> Instance:
        """One machine, asked now. Raises NotFound."""
        ...

    def launch(self, node: str, *, incident: str, token: str) -> Instance:
        """Launch a machine that will take over the node name. The same token returns the same machine.

        Raises InsufficientCapacity, NotPermitted, Throttled, Unavailable; Rejected without ``can.launch_first``."""
        ...

    @reads
    def find_launched(self, token: str) -> Instance | None:
        """The machine that an earlier ``launch`` with this token created, read from the provider (after a crash)."""
        ...

    def assign(self, instance_id: str, node: str) -> None:
        """Hand the node name over to a validated machine (tags). Idempotent."""
        ...

    def terminate(self, instance_id: str) -> None:
        """Terminate for good. Succeeds if it is gone already."""
        ...

    def replace(self, node: str, instance_id: str, *, incident: str, token: str) -> Instance:
        """Replace this machine with another under the same node name. The caller has freed the node of jobs.

        Safe to repeat with the same instance id and token, even long after the first order is done: a machine that is shutting
        down or gone counts as being replaced. Returns the machine as shown now: often the old id until it is gone, then the new
        one; on bare metal the id may stay. Completion is seen from the node's agent: another instance id, or another boot id.
        Raises RepairsItself, InsufficientCapacity, NotPermitted, Unavailable; Rejected without ``can.replace_in_place``."""
        ...

    def reboot(self, instance_id: str, *, incident: str = "", token: str = "") -> None:
        """Ask for a reboot; completion is seen from the node's boot id. Where the provider keeps no token the caller compares
        boot ids before it repeats the call. Raises RepairsItself; Rejected without ``can.reboot``."""
        ...

    def stop_start(self, instance_id: str, *, incident: str, token: str) -> Instance:
        """Stop the machine and start it again, on another host where the provider can. Done when it returns (pending or running).

        Bounded: raises Unavailable while the machine is still changing state; call it again with the same token.
        Rejected without ``can.stop_start``."""
        ...

    def report_fault(self, instance_id: str, *, since: datetime, text: str) -> None:
        """Report a confirmed hardware fault to the provider, best effort. Changes nothing; a no-op for providers that accept no
        such reports. The caller ignores errors."""
        ...


class Notifier(Protocol):
    """Sender of notifications to operators and job owners."""

    def notify(self, subject: str, body: str, *, over_of: str = "") -> None:
        """``over_of``: subject of the earlier notification whose cause is over; empty: this is none of these."""
        ...


class Address(Protocol):
    """One place that takes messages to people: a mailbox, a channel, a paging service, an Alertmanager."""

    @property
    def name(self) -> str:
        """Where it was configured and its kind, without secrets: ``urls[0] mailto``."""
        ...

    def send(self, message: Message) -> None:
        """Deliver a message. Raises Unavailable, without secrets in its text."""
        ...

    def keep(self, matters: Sequence[Matter]) -> None:
        """Called each minute with what is open. For services that take an alert for over unless it is repeated; others ignore it.

        Raises Unavailable."""
        ...


class QuorumRooms(Protocol):
    """Control interface of the quorum service: rendezvous of elastic jobs' groups. Every call may raise Unavailable."""

    def open(self, room: str, rules: RoomRules) -> OpenRoom:
        """Open a rendezvous, or change the rules of an open one. Address and token stay the same until it is closed."""
        ...

    def evict(self, room: str, member: str, reason: str) -> tuple[str, ...]:
        """Fence a run (``GroupRun.selector``) for good: later members of it are refused. Returns its present members. Raises NotFound."""
        ...

    def close(self, room: str) -> None:
        """Close the rendezvous; its record stays. Raises NotFound."""
        ...

    def rooms(self) -> tuple[RoomView, ...]:
        """All open rendezvous, read now."""
        ...

    def records(self, after_id: int, limit: int) -> tuple[RoomRecord, ...]:
        """Events of all rendezvous, including closed ones, oldest first."""
        ...

    def began(self, room: str) -> datetime | None:
        """Time of the first recorded event of this rendezvous since it was opened; None: there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Lease:
    """The leader's lease. The fence grows by one with every new holder and is carried by every intent."""

    holder: str
    """Id of the controller's process: ``NAME/RANDOM``; the name is only for display."""
    fence: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Accepted:
    """Answer to a report: it is durable, now or since an earlier delivery."""

    duplicate: bool
    out_of_order: bool = False
    """The sequence is lower than one accepted before, but new: stored anyway."""


class Store(Protocol):
    """The database. Synchronous; writes go through one writer that groups commits; every method is one transaction."""

    def take_lease(self, holder: str, now: datetime, ttl_s: float, ended: Collection[str] = ()) -> Lease | None:
        """Take or renew the leader's lease. None: another process holds it. The caller's own lease, expired but not taken
        by another process, is renewed with the same fence; every new holder gets a new one.

        ``holder``: an id that no other process has. ``ended``: ids of processes that are known to have ended: their lease is
        taken over before it expires."""
        ...

    def lease(self) -> Lease | None: ...

    def accept(self, report: Report) -> Accepted:
        """Store a report with all its items, once. Durable when it returns.

        Findings get ids (incident None), a repetition of an open finding's key only counts up; clears set ``cleared_at``;
        statements update the checkpoint record (only of the same uid); outcomes settle orders and add the action event;
        the inventory updates the node record when it comes from the serving machine."""
        ...

    def load_book(self, now: datetime, ahead: timedelta = timedelta(0)) -> Book:
        """Load the state snapshot. ``ahead``: how far the clock was set ahead: closed items are read from that much further back."""

    def commit(self, change: Change, fence: int) -> None:
        """Apply a change, all or nothing. Raises LeaderFencedOff when the lease has another fence, Stale (an Unavailable) when an
        operator changed one of its incidents since the state was loaded: the next cycle sees it."""
        ...

    def due_intents(self) -> tuple[Intent, ...]:
        """Intents for the actor: PLANNED and STARTED ones that are not orders, by (planned_at, order, key)."""
        ...

    def start_intent(self, key: str, fence: int, at: datetime) -> None:
        """PLANNED → STARTED with its event, before anything is done outside. Raises LeaderFencedOff."""
        ...

    def finish_intent(self, key: str, fence: int, outcome: IntentOutcome, at: datetime) -> None:
        """STARTED or PLANNED → settled with its event and, for a drain, the mark. Raises LeaderFencedOff."""
        ...

    def take_orders(
        self, node: str, instance_id: str, boot_id: str, now: datetime, *, observes: bool = False
    ) -> tuple[Intent, ...]:
        """Orders for this agent that are neither settled nor expired nor held (:mod:`holdfast.model.actions.held_orders`); PLANNED ones
        become STARTED (delivered). A delivered one is handed out again until its outcome is in: the agent acts at most once per id.

        ``observes``: the controller's mode is observe."""
        ...

    def operate(self, operation: Operation, at: datetime) -> None:
        """Apply an operator's order: pause, resume, acknowledge, close, retry, release a brake. With its event."""
        ...

    def incidents(
        self, *, only_open: bool = False, node: str | None = None, since: datetime | None = None, limit: int = 200
    ) -> tuple[Incident, ...]:
        """Newest first."""
        ...

    def incident(self, incident_id: str) -> Incident | None:
        """One incident, open or closed."""
        ...

    def events(
        self,
        *,
        incident_id: str | None = None,
        since: datetime | None = None,
        after_id: int = 0,
        kinds: tuple[EventKind, ...] = (),
        limit: int = 10_000,
    ) -> tuple[Event, ...]:
        """Oldest first."""
        ...

    def recoveries(
        self, *, job_id: int | None = None, incident_id: str | None = None, since: datetime | None = None
    ) -> tuple[Recovery, ...]: ...

    def job_ends(self, job_id: int) -> tuple[JobEnd, ...]:
        """How runs of jobs with this id ended, oldest first; Slurm uses ids again."""
        ...

    def intents(self, *, incident_id: str | None = None, limit: int = 1000) -> tuple[Intent, ...]: ...

    def note(self, key: str) -> str | None:
        """A small fact kept for ever: schema of ownership, the cluster's name, when the store was made."""
        ...

    def set_note(self, key: str, value: str) -> None: ...

    def remember_rooms(self, rooms: Iterable[KnownRoom], fence: int) -> None:
        """What :attr:`Book.rooms` is from now on. Raises LeaderFencedOff."""
        ...

    def record_once(self, note: str, before: str | None, after: str, events: tuple[Event, ...], fence: int) -> None:
        """Append events that another process recorded, and store the note with the read position: all or nothing.

        Raises LeaderFencedOff; Stale when the note is not ``before``, so that nothing is appended twice."""
        ...

    def see_provider(self, view: ProviderView) -> None:
        """Record what the actor sees of the provider now; the next state snapshot contains it."""
        ...

    def ping(self) -> None:
        """Raises Unavailable when the database does not answer."""
        ...


@dataclass(frozen=True, slots=True)
class IntentOutcome:
    """Result of an intent, as the actor saw it."""

    state: IntentState
    text: str
    """One line."""
    retryable: bool = False
    result: Mapping[str, Any] = field(default_factory=dict)
    mark: NodeMark | None = None
    drop_mark: str | None = None
    node: NodeRecord | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator's order to Holdfast itself."""

    verb: str
    """pause, resume, acknowledge, close, retry, release_brake, suppress, unsuppress, maintain, end_maintenance, extend_budget,
    drain_node, release_node, note_node; of a proposal accept, dismiss, snooze, reopen."""
    who: str
    target: str = ""
    """Incident id, kind of brake or budget, id of a suppression or proposal, node or nodes."""
    reason: str = ""
    suppression: Suppression | None = None
    """The suppression that ``suppress`` records."""
    window: Window | None = None
    """The maintenance window that ``maintain`` starts."""
    nodes: tuple[str, ...] = ()
    """Nodes whose maintenance ``end_maintenance`` ends."""
    extension: BudgetExtension | None = None
    """The extension that ``extend_budget`` records."""
    in_service: bool = False
    """Whether Slurm shows the node of the incident to ``close`` in service."""
    until: datetime | None = None
    """Until when an ``accept`` counts, or when a proposal in ``snooze`` is asked again."""
    order: NodeOrder | None = None
    """The order that ``drain_node`` or ``release_node`` records."""
    node: str = ""
    """Node that ``drain_node``, ``release_node`` or ``note_node`` is about."""
    incident_id: str = ""
    """Open incident of that node, in whose timeline the operator's words are shown too; empty: none is."""
    ticket: str = ""
    """Id of a ticket in the site's own system; empty: none was named."""
