"""One small Protocol per outside thing.

Adapters live in ``slurm/``, ``providers/``, ``store/``; twins obey one contract suite.

Every call is synchronous and bounded: an adapter has a deadline of its own and raises
:class:`~holdfast.model.errors.Unavailable` when it passes. Calls that change something are idempotent or say so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from holdfast.model.action import Intent, IntentState
from holdfast.model.background import Topology
from holdfast.model.book import Book, Change, NodeMark, NodeRecord
from holdfast.model.budgets import BudgetExtension
from holdfast.model.cluster import ClusterView, Job, Node, Partition, Reservation
from holdfast.model.event import Event, EventKind
from holdfast.model.incident import Incident, Recovery
from holdfast.model.job_ends import JobEnd
from holdfast.model.machine import Instance, Notice, ProviderCan, ProviderView
from holdfast.model.maintenance import Window
from holdfast.model.report import Report
from holdfast.model.room_names import KnownRoom
from holdfast.model.rooms import OpenRoom, RoomRecord, RoomRules, RoomView
from holdfast.model.suppression import Suppression

_Verb = TypeVar("_Verb", bound=Callable[..., object])


def reads(verb: _Verb) -> _Verb:
    """Marks what changes nothing outside. Everything else is looked at before it is done (``actor/lease_guard.py``)."""
    vars(verb)["reads"] = True
    return verb


def reading(port: type) -> frozenset[str]:
    """Names of a port's verbs and properties that are marked so."""
    found = ((name, each.fget if isinstance(each, property) else each) for name, each in vars(port).items())
    return frozenset(name for name, each in found if getattr(each, "reads", False))


class Clock(Protocol):
    """Time, injected everywhere so that tests own it."""

    def now(self) -> datetime:
        """Wall time, UTC-aware."""
        ...

    def monotonic_s(self) -> float:
        """CLOCK_MONOTONIC in seconds."""
        ...


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
        """Set DRAIN with the reason. Running jobs go on. Overwrites nothing: the caller has looked at the reason first."""
        ...

    def undrain(self, node: str) -> None:
        """Clear DRAIN (and DOWN): state RESUME. The caller has proved that the drain is ours."""
        ...

    def set_down(self, node: str, reason: str, *, drain: bool = True) -> None:
        """Set DOWN *and* DRAIN. Slurm kills and requeues the node's jobs at once: no requeue is sent besides.

        Without ``drain`` DOWN alone, for a node that is held in another way."""
        ...

    def power_down(self, node: str, reason: str) -> None:
        """Have Slurm power the node down as soon as no job is on it (its SuspendProgram). It takes no new job until then.

        Once more while it goes is a success. Raises Rejected where Slurm saves no power, NotFound."""
        ...

    def power_up(self, node: str) -> None:
        """Have Slurm power a node up that is POWERED_DOWN (its ResumeProgram). Slurm ignores it while the node still goes."""
        ...

    def requeue(self, job_id: int) -> None:
        """Requeue a running or just finished batch job under the same id. Not idempotent: compare Restarts first."""
        ...

    def release(self, job_id: int, *, reservation: str | None = None) -> None:
        """Let a requeued job start now: clear the BeginTime hold, optionally inside a reservation. A heterogeneous job is
        released, requeued, held and told as a whole, by its leader's id.

        Raises Rejected while the job is still COMPLETING (try again), NotFound when it is gone."""
        ...

    def delay_start(self, job_id: int, delay_s: int) -> None:
        """Let a pending job not start before so many seconds from now, unless it is released. Slurm itself ends the delay.

        Of the record of an array's elements that have not started yet: all of these. Raises Rejected for a job that runs."""
        ...

    def set_array_throttle(self, array_job_id: int, most: int | None) -> None:
        """How many elements of the array may run at a time, at least 1; None: as many as there are. Running ones go on."""
        ...

    def hold(self, job_id: int, reason: str) -> None:
        """Hold a pending job (JobHeldUser), or requeue-hold a running or failed one, with a comment its owner can read.

        The owner may release it. Raises Rejected where Slurm does: a failed job of ``sbatch --no-requeue``."""
        ...

    def set_excluded_nodes(self, job_id: int, nodes: tuple[str, ...]) -> None:
        """Replace the ExcNodeList of a pending job; of one component alone where it is a heterogeneous job's."""
        ...

    def set_num_nodes(self, job_id: int, nodes: int) -> None:
        """Let a pending job start on exactly so many nodes, with as many tasks on each as before. Raises Rejected where Slurm does."""
        ...

    def set_job_reservation(self, job_id: int, reservation: str | None) -> None:
        """Put a job into a reservation, or take it out of any with None."""
        ...

    def tell_owner(self, job_id: int, text: str) -> None:
        """Leave one line where the owner looks: the job's AdminComment (``scontrol show job``). Empty: none is there any more."""
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
        """A reservation that begins now on nodes that may be busy. ``duration_s`` None: without end.

        ``hold_for_job``: made to keep a stopped job's nodes for its restart; a job that started in it outlives it.
        ``over``: of a hold, the one other reservation that may have some of its nodes; a job in the hold starts on nothing that any other
        reservation keeps. None: whatever there is, and a job in it passes over that.
        ``maint``: for maintenance (flag MAINT): no job starts there, whatever else keeps the nodes; those that run go on.
        Creating the same again is a success; raises Rejected when one of that name exists with other nodes."""
        ...

    def set_reservation_nodes(self, name: str, nodes: tuple[str, ...]) -> None:
        """Replace the node list. Raises NotFound. An empty list deletes the reservation."""
        ...

    def delete_reservation(self, name: str) -> None:
        """Delete it; one that is not there is a success. Jobs that started in it go on."""
        ...

    @reads
    def reservation(self, name: str) -> Reservation:
        """One reservation, read now. Raises NotFound."""
        ...

    def reboot(self, node: str, reason: str | None) -> None:
        """Ask Slurm to reboot a drained node as soon as it is idle, so that the reboot is expected. ``reason``: takes the place of the
        drain's at once, with a new time; None: that stays."""
        ...


class Provider(Protocol):
    """What can reboot or replace a machine. What changes something is idempotent by its token: the same token twice happens once.

    The caller proves whose machine it is (``decisions/machines/machine_proof.py``); :meth:`replace` proves it once more itself."""

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
        """The provider replaces broken machines by itself now (HyperPod's NodeRecovery). Raises Unavailable."""
        ...

    @reads
    def notices(self) -> tuple[Notice, ...]:
        """What the provider says by itself of live machines of this cluster: failed status checks, planned interruptions.

        Raises Unavailable, NotPermitted; a provider that says nothing of the kind gives none."""
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
        """Launch a machine that will take over the node name. The same token gives the same machine.

        Raises InsufficientCapacity, NotPermitted, Throttled, Unavailable; Rejected without ``can.launch_first``."""
        ...

    @reads
    def find_launched(self, token: str) -> Instance | None:
        """The machine that an earlier ``launch`` with this token made, asked from outside (after a crash)."""
        ...

    def assign(self, instance_id: str, node: str) -> None:
        """Hand the node name over to a validated machine (tags). Idempotent."""
        ...

    def terminate(self, instance_id: str) -> None:
        """Terminate for good. One that is gone already is a success."""
        ...

    def replace(self, node: str, instance_id: str, *, incident: str, token: str) -> Instance:
        """Make sure that this machine goes and another takes its place under the node's name. The caller has freed the node.

        Safe to repeat with the same instance id and token, also when the first order is long done: a machine that is going or
        gone is under way. Returns the machine as shown now: often the old id until it is gone, then the new one; on bare
        metal the id may stay. Completion is seen from the node's agent: another instance id, or another boot id.
        Raises RepairsItself, InsufficientCapacity, NotPermitted, Unavailable; Rejected without ``can.replace_in_place``."""
        ...

    def reboot(self, instance_id: str, *, incident: str = "", token: str = "") -> None:
        """Ask for a reboot; completion is seen from the node's boot id. Where the provider keeps no token the caller compares
        boot ids before it repeats the call. Raises RepairsItself; Rejected without ``can.reboot``."""
        ...

    def stop_start(self, instance_id: str, *, incident: str, token: str) -> Instance:
        """Stop the machine and start it again, on another host where the provider can. Done when it returns (pending or running).

        Bounded: raises Unavailable while the machine is on its way; call it again with the same token.
        Rejected without ``can.stop_start``."""
        ...

    def report_fault(self, instance_id: str, *, since: datetime, text: str) -> None:
        """Tell the provider, as a courtesy, that a confirmed hardware fault was seen. Changes nothing; one that takes no such
        word does nothing. Errors are the caller's to ignore."""
        ...


class Notifier(Protocol):
    """Tells humans."""

    def notify(self, subject: str, body: str) -> None: ...


class QuorumRooms(Protocol):
    """The quorum service's door: the rooms where elastic jobs' groups meet. Every call may raise Unavailable."""

    def open(self, room: str, rules: RoomRules) -> OpenRoom:
        """Open it, or change the rules of an open one. The same room has the same address and token until it is closed."""
        ...

    def evict(self, room: str, member: str, reason: str) -> tuple[str, ...]:
        """Fence a run (``GroupRun.selector``) for good; who is met under it later is refused. Returns who was there. Raises NotFound."""
        ...

    def close(self, room: str) -> None:
        """Its record stays. Raises NotFound."""
        ...

    def rooms(self) -> tuple[RoomView, ...]:
        """All open rooms, read now."""
        ...

    def records(self, after_id: int, limit: int) -> tuple[RoomRecord, ...]:
        """What happened in all rooms, closed ones too, oldest first."""
        ...

    def began(self, room: str) -> datetime | None:
        """When the first thing happened in this room since it was opened, by the record; None: nothing has."""
        ...


@dataclass(frozen=True, slots=True)
class Lease:
    """The leader's lease. The fence grows by one with every new holder and is carried by every intent."""

    holder: str
    """Id of the controller's process: ``NAME/RANDOM``, the name for people alone."""
    fence: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Accepted:
    """Answer to a report: it is durable, now or since an earlier delivery."""

    duplicate: bool
    out_of_order: bool = False
    """A sequence below one that was accepted already, yet unknown: stored all the same."""


class Store(Protocol):
    """The database. Synchronous; writes go through one writer that groups commits; every method is one transaction."""

    def take_lease(self, holder: str, now: datetime, ttl_s: float, ended: Collection[str] = ()) -> Lease | None:
        """Take or renew the leader's lease. None: another process holds it. A lease of one's own that ran out and was taken
        by no one is renewed with the same fence; every new holder gets a new one.

        ``holder``: an id that no other process has. ``ended``: ids of processes that have ended for certain: their lease is
        taken over before it runs out."""
        ...

    def lease(self) -> Lease | None: ...

    def accept(self, report: Report) -> Accepted:
        """Store a report with all its items, once. Durable when it returns.

        Findings get ids (incident None), a repetition of an open finding's key only counts up; clears set ``cleared_at``;
        statements update the checkpoint record (only of the same uid); outcomes settle orders and add the action event;
        the inventory updates the node record when it comes from the serving machine."""
        ...

    def load_book(self, now: datetime, ahead: timedelta = timedelta(0)) -> Book:
        """``ahead``: by how much the clock was set ahead: what is over is read from that much further back."""

    def commit(self, change: Change, fence: int) -> None:
        """All or nothing. Raises FencedOff when the lease has another fence, Stale (an Unavailable) when an operator changed
        one of its incidents since the book was loaded: the next cycle's book shows it."""
        ...

    def due_intents(self) -> tuple[Intent, ...]:
        """Intents for the actor: PLANNED and STARTED ones that are not orders, by (planned_at, order, key)."""
        ...

    def start_intent(self, key: str, fence: int, at: datetime) -> None:
        """PLANNED → STARTED with its event, before anything is done outside. Raises FencedOff."""
        ...

    def finish_intent(self, key: str, fence: int, outcome: Outcome, at: datetime) -> None:
        """STARTED or PLANNED → settled with its event and, for a drain, the mark. Raises FencedOff."""
        ...

    def take_orders(
        self, node: str, instance_id: str, boot_id: str, now: datetime, *, observes: bool = False
    ) -> tuple[Intent, ...]:
        """Orders for this agent that are neither settled nor expired nor held (:mod:`holdfast.model.held_orders`); PLANNED ones become
        STARTED (delivered). A delivered one is handed out again until its outcome is in: the agent acts at most once per id.

        ``observes``: the controller's mode is observe."""
        ...

    def operate(self, operation: Operation, at: datetime) -> None:
        """Something an operator ordered: pause, resume, acknowledge, close, retry, release a brake. With its event."""
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
        """What :attr:`Book.rooms` is from now on. Raises FencedOff."""
        ...

    def record_once(self, note: str, before: str | None, after: str, events: tuple[Event, ...], fence: int) -> None:
        """Append events that another process recorded, together with the note that says how far they were read: all or nothing.

        Raises FencedOff; Stale when the note is not ``before``, so that nothing is appended twice."""
        ...

    def see_provider(self, view: ProviderView) -> None:
        """What the actor sees of the provider now: it is in the next book."""
        ...

    def ping(self) -> None:
        """Raises Unavailable when the database does not answer."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an intent ended, as the actor saw it."""

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
    """pause, resume, acknowledge, close, retry, release_brake, suppress, unsuppress, maintain, end_maintenance, extend_budget."""
    who: str
    target: str = ""
    """Incident id, kind of brake or budget, id of a suppression, or nodes."""
    reason: str = ""
    suppression: Suppression | None = None
    """What ``suppress`` is to put down."""
    window: Window | None = None
    """What ``maintain`` begins."""
    nodes: tuple[str, ...] = ()
    """Nodes whose maintenance ``end_maintenance`` ends."""
    extension: BudgetExtension | None = None
    """What ``extend_budget`` is to put down."""
    in_service: bool = False
    """Slurm shows the node of the incident that ``close`` is about in service."""
