"""State of Holdfast as one immutable snapshot (:class:`Book`), and changes to it. Standard library only.

Loaded from the store at the start of a cycle (it grows with open incidents, not with healthy nodes); a cycle ends in one :class:`Change`
that the store commits in one transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from holdfast.model.actions.action import Intent, IntentState
from holdfast.model.actions.budgets import BudgetExtension, BudgetKind
from holdfast.model.actions.steps import Step
from holdfast.model.agents.reach import HeadProbe
from holdfast.model.agents.report import AgentView, Finding
from holdfast.model.background import Background
from holdfast.model.conditions import Conditions
from holdfast.model.elastic_jobs.room_names import KnownRoom
from holdfast.model.event import Event
from holdfast.model.incidents.incident import Incident, Recovery
from holdfast.model.jobs.job_ends import JobEnd
from holdfast.model.jobs.surveys import CheckpointSurvey
from holdfast.model.machine import CAN_NOTHING, ProviderCan, ProviderView
from holdfast.model.operators.maintenance import Window
from holdfast.model.operators.node_orders import NodeOrder
from holdfast.model.operators.suppression import Suppression
from holdfast.model.pauses import doubling_s
from holdfast.model.policies.policy import Policy
from holdfast.model.slurm.cluster import ClusterView, JobKey, JobRun, Node
from holdfast.model.slurm.hostlist import names_node
from holdfast_checks.words import unknown_reads_as


@dataclass(frozen=True, slots=True)
class NodeMark:
    """Proof that a drain is ours: what Slurm showed right after we set it."""

    node: str
    incident_id: str
    reason: str
    user: str
    time: datetime | None
    """Slurm's ReasonTime, second resolution."""

    def is_on(self, node: Node) -> bool:
        """The node is out by this very drain: no one has changed it since."""
        return (node.reason, node.reason_user, node.reason_time) == (self.reason, self.user, self.time)


@dataclass(frozen=True, slots=True)
class SlurmShown:
    """Who had the node out of service, if it was not Holdfast, as last recorded (``decisions/nodes/foreign_drains.py``)."""

    out: bool
    """Whether it was out of service then, not by Holdfast."""
    kind: str = ""
    """Kind of the event that recorded it (:class:`holdfast.model.event.EventKind`)."""
    by: str = ""
    """``slurm`` or ``others``."""
    reason: str = ""
    user: str = ""
    time: datetime | None = None
    """Slurm's time of the reason."""
    since: datetime | None = None
    """When Holdfast first saw it out; None: it was out at the first reading of Slurm on record."""
    category: str = ""
    """Of the site's rule that the reason matches (``[[drain_rules]]``); empty: none does."""
    scores: bool = False
    """Whether that rule counts it for the node's score."""
    changes: int = 0
    """Changes recorded since :attr:`changes_since`: a node that flaps is recorded only so often."""
    changes_since: datetime | None = None


MOST_EXCHANGED = 256
"""Exchanged GPUs that a node's record keeps: 32 times the eight of a machine, and an agent that invents others fills no record."""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """Record of a node in the store."""

    name: str
    instance_id: str = ""
    """Machine that serves the node, as last proved."""
    boot_id: str = ""
    gpu_uuids: frozenset[str] = frozenset()
    exchanged_gpus: frozenset[str] = frozenset()
    """GPUs that this machine had, and has others in place of: a board was exchanged (:meth:`with_gpus`)."""
    checked_at: datetime | None = None
    """When it was last checked by order (``decisions/spares/spare_checks.py``); None: not yet, or not since another machine or boot was
    noted."""
    deep_at: datetime | None = None
    """When its last deep check by order ended."""
    check_note: str = ""
    """Problem that the last check by order found; empty: none."""
    hands: str = ""
    """In whose hands it is (:class:`holdfast.decisions.nodes.hands_off.Hands`: maintenance, a reboot); empty: in none but Holdfast's."""
    hands_since: datetime | None = None
    """When it last came into other hands."""
    hands_ended_at: datetime | None = None
    """When it was last given back; None: never, or it is in other hands now."""
    out_for: str = ""
    """Incident that was closed while it was out of service, and whose return is not on record yet; empty: there is none."""
    unreached_since: datetime | None = None
    """When it last answered, its agent or its kernel, before it did neither (``decisions/death/unreached.py``); None: it always has."""
    unreached_by: datetime | None = None
    """Latest time by which it had stopped, given how often it reports or is probed; None: 30 s later, as older releases assume."""
    unreached_until: datetime | None = None
    """When it answered again; None: it does not yet."""
    unreached_unseen: bool = False
    """It stopped while no controller listened: nodes cut off with it may have been back before one did."""
    unreached_with: str = ""
    """A node that was cut off together with it and answers again; empty: none is known."""
    unreached_near: str = ""
    """The same of a node that stopped answering within ten minutes of it."""
    alive_at: datetime | None = None
    """Its last sign of life while the head node did not reach it, to the minute; None: there was none."""
    shown: SlurmShown | None = None
    """Who had it out of service other than Holdfast, as last recorded; None: nothing of this kind was recorded yet."""

    def with_gpus(self, boot_id: str, gpu_uuids: frozenset[str]) -> NodeRecord:
        """The record with a newer inventory of the same machine. Missing GPUs were exchanged if it shares none with the one before, or has
        as many new ones; otherwise they may be lost."""
        lost, new = self.gpu_uuids - gpu_uuids, gpu_uuids - self.gpu_uuids
        exchanged = lost if len(new) >= len(lost) or (new and new == gpu_uuids) else frozenset[str]()
        known = (self.exchanged_gpus | exchanged) - gpu_uuids
        if len(known) > MOST_EXCHANGED:
            known = frozenset(sorted(exchanged)[:MOST_EXCHANGED])
        return replace(rebooted(self, boot_id), gpu_uuids=gpu_uuids, exchanged_gpus=known)

    def of_machine(self, instance_id: str, boot_id: str, gpu_uuids: frozenset[str] = frozenset()) -> NodeRecord:
        """The record with another machine: data of the one before is dropped, except in whose hands the node is, that it is out, and when
        it answered."""
        return NodeRecord(
            self.name,
            instance_id,
            boot_id,
            gpu_uuids,
            hands=self.hands,
            hands_since=self.hands_since,
            hands_ended_at=self.hands_ended_at,
            out_for=self.out_for,
            unreached_since=self.unreached_since,
            unreached_by=self.unreached_by,
            unreached_unseen=self.unreached_unseen,
            unreached_until=self.unreached_until,
            unreached_with=self.unreached_with,
            unreached_near=self.unreached_near,
            shown=self.shown,
        )


def rebooted(record: NodeRecord, boot_id: str) -> NodeRecord:
    """The record in another boot of the same machine: earlier checks no longer count, in whose hands it is does not change."""
    return (
        record
        if boot_id == record.boot_id
        else replace(record, boot_id=boot_id, checked_at=None, deep_at=None, check_note="")
    )


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """Reports of a job about its checkpoints, bound to uid, job and node."""

    job_id: int
    uid: int
    restarts: int
    directory: str
    """Empty: it has registered none and only reports its progress."""
    fenced: bool
    """Its library refuses an older run's writes: a fence that needs no power-off."""
    save_signal: str | None = None
    save_s: float | None = None
    """Time that the job reported it takes to save upon that signal; None: not reported."""
    saved_step: int | None = None
    saved_at: datetime | None = None
    progress_step: int | None = None
    progress_at: datetime | None = None
    progress_restarts: int | None = None
    """Run that reported it."""
    progress_gap_s: float | None = None
    """Longest time between two progress reports of that run while it stepped; None: there was one at most."""
    quorum: int | None = None
    """For an elastic job: its members have changed when this has. None: not reported."""
    phase: str = ""
    """Phase in the run's last report (init, step, waiting, heal, checkpoint, leaving); empty: it reports no phases."""
    phase_at: datetime | None = None
    """Since when."""
    step_at: datetime | None = None
    """Time when that run last reported a new step; None: none yet."""
    longest_step_s: float | None = None
    """Longest step that it reported; None: it reports no times."""
    own_ms: tuple[int, ...] = ()
    """Its own part of a step, before it waits for others: the minimum of each of the last time slots (``store/progress.py``)."""
    own_at: datetime | None = None
    """Start of the newest slot."""
    resumed_step: int | None = None
    resumed_at: datetime | None = None
    resumed_restarts: int | None = None
    """Run that reported ``resumed``."""
    reached_step: int | None = None
    """Last step that the run before that one had reported."""
    survey: CheckpointSurvey | None = None
    """Files that this node's agent last found in the directory."""
    surveyed_at: datetime | None = None
    """Start of that reading: files written later may be missing."""
    node: str = ""
    """Node whose agent reported it. It counts only while that is a node of the job (``facts.checkpoint_of``)."""
    registered_at: datetime | None = None
    """Time when a job under this id last registered the directory; None: it registered none, or registered with an earlier release."""
    several: bool = False
    """This run has registered another directory as well: if this one is empty, that is no evidence about the job."""

    def said_since(self, begun: datetime) -> CheckpointRecord:
        """The record without reports from before this time. Slurm reuses ids: those came from an earlier job of the same user."""
        there = self
        if _is_before(self.registered_at, begun):
            there = replace(
                there, directory="", fenced=False, save_signal=None, save_s=None, survey=None, surveyed_at=None
            )
            there = replace(there, saved_step=None, saved_at=None)
        if _is_before(self.saved_at, begun):
            there = replace(there, saved_step=None, saved_at=None)
        if _is_before(self.surveyed_at, begun):
            there = replace(there, survey=None, surveyed_at=None)
        if _is_before(self.resumed_at, begun):
            there = replace(there, resumed_step=None, resumed_at=None, resumed_restarts=None, reached_step=None)
        if _is_before(self.progress_at, begun):
            none = CheckpointRecord(self.job_id, self.uid, self.restarts, directory="", fenced=False)
            there = replace(there, **{name: getattr(none, name) for name in _OF_PROGRESS})
        return there


_OF_PROGRESS = (
    "progress_step",
    "progress_at",
    "progress_restarts",
    "progress_gap_s",
    "quorum",
    "phase",
    "phase_at",
    "step_at",
    "longest_step_s",
    "own_ms",
    "own_at",
)


def _is_before(at: datetime | None, begun: datetime) -> bool:
    return at is not None and at < begun


def told_of(claims: Iterable[CheckpointRecord]) -> CheckpointRecord | None:
    """Merge the records of several nodes of a job: the reports of the newest run, and those that only an earlier node of the job has.

    The caller decides whose claims may count: an agent may claim any job and uid."""
    ordered = sorted(claims, key=lambda r: (r.restarts, _told_at(r), r.node))
    if not ordered:
        return None
    newest = ordered[-1]
    same = [r for r in ordered if r.directory == newest.directory and r.saved_at is not None]
    saved = max(same, key=lambda r: r.saved_at or _NEVER, default=newest)
    if saved is not newest:
        newest = replace(newest, saved_step=saved.saved_step, saved_at=saved.saved_at)
    for older in reversed(ordered[:-1]):
        newest = _completed(newest, older)
    return newest


def _with_survey(told: CheckpointRecord, claims: Iterable[CheckpointRecord]) -> CheckpointRecord:
    """The record with the newest survey of its directory, no matter which node's agent made it."""
    mine = (r for r in claims if r.survey is not None and r.survey.directory == told.directory)
    newest = max(mine, key=lambda r: r.surveyed_at or _NEVER, default=told)
    if newest.survey is told.survey and newest.surveyed_at == told.surveyed_at:
        return told
    return replace(told, survey=newest.survey, surveyed_at=newest.surveyed_at)


_NEVER = datetime.min.replace(tzinfo=UTC)


def _told_at(record: CheckpointRecord) -> datetime:
    return max(
        (at for at in (record.saved_at, record.progress_at, record.resumed_at) if at is not None), default=_NEVER
    )


def _completed(newest: CheckpointRecord, older: CheckpointRecord) -> CheckpointRecord:
    """The newer record with the older node's progress if it has none."""
    if newest.reached_step is None and newest.resumed_restarts is not None and older.restarts < newest.resumed_restarts:
        newest = replace(newest, reached_step=older.progress_step)
    if newest.progress_step is None:
        newest = replace(newest, progress_step=older.progress_step, progress_at=older.progress_at)
        newest = replace(newest, progress_restarts=older.progress_restarts, progress_gap_s=older.progress_gap_s)
    return newest


@unknown_reads_as("drains", "the brake holds drains and job stops until an operator releases it")
class BrakeKind(StrEnum):
    DRAINS = "drains"
    """On new automatic drains."""
    JOB_STOPS = "job_stops"
    """On running jobs stopped because of a check's verdict."""
    PLANNED_STOPS = "planned_stops"
    """On planned stops that agents report and the provider's own API does not."""
    TASK_DRAINS = "task_drains"
    """On nodes with what a user's job can cause (Slurm's ``Kill task failed``, a full disk); it holds nothing else."""


@dataclass(frozen=True, slots=True)
class Brake:
    """A tripped brake. Resuming is explicit (an operator) or half-open with one node."""

    kind: BrakeKind
    tripped_at: datetime
    reason: str
    released_at: datetime | None = None
    """When an operator released it; drains and stops before this no longer count. None: it holds."""
    node_set: str = ""
    """The ``[[nodes]]`` table whose limits tripped it; empty: those of the site, so that it holds every node."""
    nodes: str = ""
    """Host list of the set's nodes when it tripped: it holds them until it is released, whatever becomes of the set."""
    nodes_known: bool = False
    """Whether ``nodes`` names all of them, so that an empty one means none. One of an earlier release, of a time when Slurm did not answer,
    or that cannot be read does not say so: without ``nodes`` it holds every node."""

    @property
    def name(self) -> str:
        """By which it is shown and released: ``drains``, or ``drains@SET``."""
        return at_set(self.kind.value, self.node_set)

    @property
    def holds(self) -> bool:
        return self.released_at is None

    def had(self, names: Iterable[str]) -> bool:
        """Whether it held one of these nodes when it tripped. One that does not say which nodes it had holds all."""
        return self.had_all or any(names_node(self.nodes, name) for name in names if self.nodes)

    @property
    def had_all(self) -> bool:
        """Whether it held every node: that of the site, or one of which the nodes are not known."""
        return not (self.nodes or self.nodes_known)


def at_set(kind: str, node_set: str) -> str:
    """Name of a set's brake or budget; without a set the site's."""
    return f"{kind}@{node_set}" if node_set else kind


@dataclass(frozen=True, slots=True)
class Book:
    incidents: Mapping[str, Incident] = field(default_factory=dict)
    """Open ones, and closed ones as far back as the policy's rules look (``lookback.needed``)."""
    findings: Mapping[int, Finding] = field(default_factory=dict)
    """Findings of open incidents, and new ones that belong to none yet."""
    recoveries: Mapping[str, Recovery] = field(default_factory=dict)
    """Not final ones, and final ones as far back as the rules look."""
    intents: Mapping[str, Intent] = field(default_factory=dict)
    """Intents of open incidents, all of the last hour (the brakes count them), and steps at machines as far back as the rules need."""
    marks: Mapping[str, NodeMark] = field(default_factory=dict)
    nodes: Mapping[str, NodeRecord] = field(default_factory=dict)
    checkpoints: Mapping[int, Mapping[str, CheckpointRecord]] = field(default_factory=dict)
    """By job id and by the node whose agent reported it, for jobs that are not forgotten yet."""
    brakes: Mapping[str, Brake] = field(default_factory=dict)
    """By name, released ones too."""
    suppressions: Mapping[str, Suppression] = field(default_factory=dict)
    """By id, those that hold."""
    rooms: Mapping[int, KnownRoom] = field(default_factory=dict)
    """By job id of the base array: rendezvous of elastic jobs (``decisions/elastic/naming.py``)."""
    windows: tuple[Window, ...] = ()
    """Maintenance windows that operators ordered, those that ended within a day too."""
    ends: Mapping[str, JobEnd] = field(default_factory=dict)
    """By run (:attr:`JobRun.text`): ends of the last hour (``lookback.JOB_ENDS_S``)."""
    extensions: Mapping[BudgetKind, BudgetExtension] = field(default_factory=dict)
    """Of the budgets on machines: those that hold."""
    paused: str | None = None
    """User who paused, and the reason; None: not paused."""
    paused_at: datetime | None = None
    """When; None: not paused, or paused by a release that did not record it."""
    nodes_since: datetime | None = None
    """Since when it is on record who took nodes out of service other than Holdfast; None: Slurm was not read for that yet."""
    node_orders: tuple[NodeOrder, ...] = ()
    """Nodes that operators ordered to drain or to release, of the last hour."""
    restored_at: datetime | None = None
    """Time when the store was restored from a backup; None: never. Its incidents of before are as old as that backup."""
    provider: ProviderView | None = None
    """The actor's last reading of the provider; None: none yet, so it is unknown what can be repaired."""
    _open: list[tuple[Incident, ...]] = field(default_factory=list, init=False, repr=False, compare=False)
    """What :meth:`open_incidents` found, once it was asked: a turn asks dozens of times, and this object does not change."""
    _intents: dict[str, tuple[Intent, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What :meth:`intents_of` returns, by incident, once it was asked."""
    _steps: dict[str, dict[Step, tuple[Intent, ...]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """What :meth:`planned` found, by incident."""

    @property
    def holds(self) -> frozenset[str]:
        """Names of the reservations that keep nodes for recovered jobs: ours. Any other one is someone else's, whatever its name."""
        return frozenset(r.hold for r in self.recoveries.values() if r.hold is not None)

    def brakes_on(self, incident_id: str, nodes: Collection[str] = ()) -> list[Brake]:
        """Brakes that hold, but for those that hold other incidents or other nodes alone. ``nodes``: those that a step is about, in
        addition to the incident's. Nodes that joined a set after its brake tripped are not known here (``common/brake_scopes.py``)."""
        incident = self.incidents.get(incident_id)
        named = (*nodes, *((incident.node,) if incident is not None and incident.node else ()))
        return [b for b in self.brakes_of(incident_id) if b.had(named)]

    def brakes_of(self, incident_id: str) -> list[Brake]:
        """Brakes that hold, on whatever nodes, but for those that hold other incidents alone."""
        incident = self.incidents.get(incident_id)
        its_own = incident is not None and incident.users_doing
        holding = (b for b in self.brakes.values() if b.holds)
        return [b for b in holding if its_own or b.kind is not BrakeKind.TASK_DRAINS]

    def open_incidents(self) -> tuple[Incident, ...]:
        if not self._open:
            self._open.append(tuple(self.incidents[k] for k in sorted(k for k, i in self.incidents.items() if i.open)))
        return self._open[0]

    def open_on(self, node: str) -> tuple[Incident, ...]:
        return tuple(i for i in self.open_incidents() if i.node == node)

    def intents_of(self, incident_id: str) -> tuple[Intent, ...]:
        """In the order of planning."""
        if self.intents and not self._intents:
            self._intents.update(self._of_incidents())
        return self._intents.get(incident_id, ())

    def _of_incidents(self) -> dict[str, tuple[Intent, ...]]:
        found: dict[str, list[Intent]] = {}
        for intent in self.intents.values():
            found.setdefault(intent.incident_id, []).append(intent)
        return {of: tuple(sorted(mine, key=lambda i: (i.planned_at, i.order, i.key))) for of, mine in found.items()}

    def attempts(self, incident_id: str, step: Step, job: JobKey | None = None) -> tuple[Intent, ...]:
        """All attempts of one step, oldest first. What was withheld (attempt 0), or expired before it was begun, is no attempt. ``job``:
        only those for this job; a step names its id alone, which Slurm reuses."""
        mine = (i for i in self.planned(incident_id, step) if i.is_attempt)
        return tuple(i for i in mine if job is None or i.action.target.job in (job, None))

    def planned(self, incident_id: str, step: Step) -> tuple[Intent, ...]:
        """Every time that one step was planned, in the order of their numbers; what was withheld was not."""
        if incident_id not in self._steps:
            self._steps[incident_id] = self._planned_steps(incident_id)
        return self._steps[incident_id].get(step, ())

    def _planned_steps(self, incident_id: str) -> dict[Step, tuple[Intent, ...]]:
        found: dict[Step, list[Intent]] = {}
        for intent in self.intents_of(incident_id):
            of_step = found.setdefault(intent.step, [])
            if intent.state is not IntentState.WITHHELD:
                of_step.append(intent)
        return {step: tuple(sorted(mine, key=lambda i: i.attempt)) for step, mine in found.items()}

    def failed_steps(self, incident_id: str) -> dict[Step, Intent]:
        """Steps whose newest attempt failed, with that attempt."""
        newest = {i.step: i for i in self.intents_of(incident_id) if i.is_attempt}
        return {step: i for step, i in newest.items() if i.state is IntentState.FAILED}

    def checkpoint_of(
        self, job_id: int, uid: int, nodes: Collection[str], since: datetime | None = None
    ) -> CheckpointRecord | None:
        """Reports of these nodes about the job's checkpoints under that uid; those of other nodes do not count. ``since``: as of
        :meth:`progress_of`."""
        claims = self.progress_of(job_id, uid, nodes, since)
        told = told_of(r for r in claims if r.directory)
        return None if told is None else _with_survey(told, claims)

    def progress_of(
        self, job_id: int, uid: int, nodes: Collection[str], since: datetime | None = None
    ) -> tuple[CheckpointRecord, ...]:
        """Reports of each of these nodes about the job under that uid, also without a registered directory. ``since``: earlier reports are
        not this job's (:attr:`Job.speaks_since`); None: not known, all of them count."""
        claims = self.checkpoints.get(job_id, {})
        mine = (r for node, r in sorted(claims.items()) if node in nodes and r.uid == uid)
        return tuple(r if since is None else r.said_since(since) for r in mine)

    def recovery_of(self, job: JobKey, restarts: int) -> Recovery | None:
        run = JobRun.of(job, restarts)
        return self.recoveries.get(run.text)


@dataclass(frozen=True, slots=True)
class Change:
    """Writes of one cycle, all or nothing."""

    incidents: tuple[Incident, ...] = ()
    """New and changed ones."""
    placed: Mapping[int, str] = field(default_factory=dict)
    """Finding id → incident id."""
    recoveries: tuple[Recovery, ...] = ()
    intents: tuple[Intent, ...] = ()
    """New ones only; a key that exists is a bug and fails the transaction."""
    marks: tuple[NodeMark, ...] = ()
    nodes: tuple[NodeRecord, ...] = ()
    brakes: tuple[Brake, ...] = ()
    ends: tuple[JobEnd, ...] = ()
    """New and changed ones."""
    events: tuple[Event, ...] = ()
    nodes_since: datetime | None = None
    """What :attr:`Book.nodes_since` is from now on; None: as it was."""

    @property
    def empty(self) -> bool:
        return not any(
            (
                self.incidents,
                self.placed,
                self.recoveries,
                self.intents,
                self.marks,
                self.nodes,
                self.brakes,
                self.ends,
                self.events,
                self.nodes_since,
            )
        )


@dataclass(frozen=True, slots=True)
class SeenDown:
    """A node that slurmctld itself had set DOWN, as this process saw it."""

    since: datetime
    last: datetime
    rebooted: bool
    """For an unexpected reboot, not for silence."""


@dataclass(frozen=True, slots=True)
class World:
    """Everything a decision may look at. No clock, no I/O: ``now`` is part of it."""

    now: datetime
    policy: Policy
    book: Book
    view: ClusterView | None
    """None: Slurm does not answer (or too long ago): decisions that depend on it freeze."""
    agents: Mapping[str, tuple[AgentView, ...]] = field(default_factory=dict)
    """Node → its agents: one per machine while a replacement is validated in addition to the old one."""
    listening_since: datetime | None = None
    """Since when this controller has listened to agents: silence before that means nothing."""
    led_until: datetime | None = None
    """When the controller before this one last renewed its lease; None: it is not known."""
    frozen: str | None = None
    """Reason why nothing that depends on agents' silence may be decided (a cold start, too many silent at once)."""
    slurmctld_started_at: datetime | None = None
    """Start time by Slurm's own clock. Read only while it is needed (``decisions/nodes/resumed.py``), and otherwise None."""
    last_out: Mapping[str, datetime] = field(default_factory=dict)
    """Nodes of open incidents: when this process last saw each out of service."""
    seen_down: Mapping[str, SeenDown] = field(default_factory=dict)
    """Nodes of open incidents that slurmctld itself had DOWN a short while ago."""
    served: frozenset[tuple[int, int]] = frozenset()
    """Id and submit time of pending jobs for which this process has had groups of elastic jobs leave."""
    background: Background = field(default_factory=Background)
    """Data that changes slowly: histories, topology."""
    conditions: Conditions = field(default_factory=Conditions)
    """Conditions of no incident, as they were seconds ago."""
    head: Mapping[str, HeadProbe] = field(default_factory=dict)
    """The newest connect from the head node to silent nodes, and to others that a verdict waits for."""
    slurm_back_at: datetime | None = None
    """Time when slurmctld last answered again after a silence; None: no silence since this controller started."""
    chance: str = field(default="", repr=False)
    """Random value for the secrets of orders, new for each world and never stored. Empty: no order that needs one is given."""
    answers: dict[tuple[object, ...], object] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What was asked of this world before (``decisions/common/once.py``); another world, even in the same turn, begins without."""

    @property
    def can(self) -> ProviderCan:
        """Abilities of the provider as the actor last read them; none before the first reading."""
        return self.book.provider.can if self.book.provider is not None else CAN_NOTHING

    def may_try(
        self,
        incident_id: str,
        step: Step,
        job: JobKey | None = None,
        *,
        first_s: float | None = None,
        longest_s: float | None = None,
    ) -> bool:
        """Whether (another) attempt of this step (for this job) may be planned now: :meth:`may_follow`, after all attempts so far."""
        return self.may_follow(self.book.attempts(incident_id, step, job), first_s=first_s, longest_s=longest_s)

    def may_follow(
        self, attempts: tuple[Intent, ...], *, first_s: float | None = None, longest_s: float | None = None
    ) -> bool:
        """Whether another attempt may be planned after these, oldest first. ``first_s``, ``longest_s``: the first and the longest pause;
        None: those of the policy.

        Not while one is in flight, nor once one is done or was rightly refused. A failed one that may be repeated is repeated for as
        long as the world calls for it, after pauses that double: an outage of a minute or of a day must not end a recovery."""
        if not attempts:
            return True
        latest = attempts[-1]
        if latest.state is not IntentState.FAILED or not latest.retryable:
            return False
        again_at = self.again_at(attempts, first_s=first_s, longest_s=longest_s)
        return again_at is None or self.now >= again_at

    def again_at(
        self, attempts: tuple[Intent, ...], *, first_s: float | None = None, longest_s: float | None = None
    ) -> datetime | None:
        """When the next attempt after these is due, as :meth:`may_follow` counts it; None: at once. Only for ones that may be repeated."""
        if not attempts or attempts[-1].finished_at is None:
            return None
        most_s = longest_s if longest_s is not None else max(first_s or 0.0, self.policy.action_backoff_max_s)
        pause_s = doubling_s(self.policy.action_backoff_s if first_s is None else first_s, len(attempts), most_s)
        return attempts[-1].finished_at + timedelta(seconds=pause_s)
