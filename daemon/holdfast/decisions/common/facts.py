"""Queries on a world that several decisions use. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from holdfast.model import steps
from holdfast.model.action import Action, Drain, Intent, IntentState, SendOrder, SetDown, Undrain, Verb
from holdfast.model.book import Book, CheckpointRecord, NodeMark, World
from holdfast.model.cluster import FAILED_STATES, HOLDING_STATES, ClusterView, Job, Node, Reservation
from holdfast.model.elastic import declares_elastic
from holdfast.model.ids import has_slurms_words, held_reason, incident_of_reason, is_reason, without_slurms_words
from holdfast.model.incident import Incident, IncidentKind, IncidentState
from holdfast.model.lookback import STEP_HOUR_S
from holdfast.model.report import AgentView, Finding
from holdfast_checks.result import Severity

IDLE_INCIDENTS = frozenset({IncidentState.WATCHING, IncidentState.SUSPECTED, IncidentState.CLOSED})
"""States in which an incident keeps no job off its node."""


ENDED = frozenset(
    {"COMPLETED", "CANCELLED", "TIMEOUT", "DEADLINE", "OUT_OF_MEMORY", "BOOT_FAIL", "PREEMPTED", "REVOKED"}
)
"""Ends that are the job's or its owner's own; FAILED and NODE_FAIL may be the fault's doing."""
FAILED = FAILED_STATES
HUNG = "job.hung"
"""Check of the incident of a job that hangs, shown for as long as that run lasts."""
STRAGGLER = "job.straggler"
"""Check of the incident of a part of a job that is slower than the others."""
VIEW_LAG = timedelta(seconds=3)
"""A view read later than this after a step shows the step."""
CLOCK_STEP_S = 5.0
"""A view that seems to be newer than now by more than this is of unknown age: the clock was set back."""


def fresh_view(world: World) -> ClusterView | None:
    """Slurm's view if it is recent enough to decide on; None freezes what depends on it."""
    view = world.view
    if view is None:
        return None
    age_s = (world.now - view.read_at).total_seconds()
    if not -CLOCK_STEP_S <= age_s <= world.policy.view_max_age_s:
        return None
    return view


def fleet(world: World) -> frozenset[str]:
    """Nodes of Slurm that Holdfast looks after, of which shares are reckoned: each that has or had an agent, and that power saving has not
    off. A cloud cluster defines a hundred times as many, and brakes of a share of those would never hold."""
    if world.view is None:
        return frozenset()
    shown = ((name, world.view.nodes[name]) for name in with_agents(world) & world.view.nodes.keys())
    return frozenset(name for name, node in shown if not node.asleep or world.book.open_on(name))


def with_agents(world: World) -> frozenset[str]:
    """Nodes that have, or had, an agent, whether Slurm shows them or not."""
    return frozenset(world.agents) | {name for name, record in world.book.nodes.items() if record.boot_id}


SLURMD_TIMEOUT_S = 300.0
"""Slurm's default SlurmdTimeout, used if the setting is 0 or not known."""


def slurmd_timeout_s(config: Mapping[str, str]) -> float | None:
    """SlurmdTimeout of ``scontrol show config`` (``300 sec``); None: it does not say."""
    number = config.get("SlurmdTimeout", "").split()
    return float(number[0]) if number and number[0].isdigit() else None


def slurm_settled(world: World) -> bool:
    """Whether slurmctld has had one SlurmdTimeout since it last answered again, or started: until then what it shows of nodes is from
    before."""
    timeout_s = world.background.slurmd_timeout_s or SLURMD_TIMEOUT_S
    return world.slurm_back_at is None or world.now - world.slurm_back_at >= timedelta(seconds=timeout_s)


def acting(incident: Incident) -> bool:
    """An incident that takes its node out of service (unless an operator took it over)."""
    return incident.open and incident.state not in IDLE_INCIDENTS and not incident.acknowledged


def findings_of(world: World, incident: Incident) -> list[Finding]:
    """Findings of the node's agents, except consequences of another fault."""
    return [f for f in world.book.findings.values() if f.incident_id == incident.id and not f.consequence]


def suspect_nodes(world: World) -> frozenset[str]:
    """Nodes that no recovered job may run on: those with an open fatal incident, drained or not; found bad by pair probes after a job
    failed; for a while, suspects of a hang; held by a reservation, since Slurm lets a job in a Holdfast hold use nodes of other
    reservations (docs/slurm-notes.md); and those with an incident that cannot be read, which may be fatal."""
    incidents = world.book.open_incidents()
    return frozenset(
        i.node
        for i in incidents
        if i.state not in IDLE_INCIDENTS
        and (
            i.severity is Severity.FATAL
            or i.run is not None
            or i.kind is IncidentKind.UNREADABLE
            or _held_by_reservation(world, i)
        )
    ) | frozenset(node for i in incidents if _stands_out(world, i) for node in i.odd or ())


def to_exclude(world: World, *, in_service_only: bool) -> frozenset[str]:
    """Suspect nodes that a recovered job is kept off by its exclusions. ``in_service_only``: without those on which Slurm starts no job."""
    suspects = suspect_nodes(world)
    return suspects - _kept_free_by_slurm(world, suspects) if in_service_only else suspects


def _kept_free_by_slurm(world: World, names: Collection[str]) -> frozenset[str]:
    """Drained and DOWN nodes. One that a reservation holds is shown drained and is not: Slurm may let a job in a hold of ours use it."""
    held = {i.node for i in world.book.open_incidents() if _held_by_reservation(world, i)}
    nodes = world.view.nodes if world.view is not None else {}
    return frozenset(n for n in names if n in nodes and nodes[n].out_of_service and n not in held)


def unreadable_incident(book: Book, incident_id: str, action: Action) -> Incident | None:
    """The open incident that cannot be read of the node that a step is at, or is done for; None: there is none, or the step is a drain,
    which takes nothing from the node that an operator cannot give back."""
    cause = book.incidents.get(incident_id)
    nodes = {action.target.node, cause.node if cause is not None else None}
    found = (i for i in book.open_incidents() if i.kind is IncidentKind.UNREADABLE and i.node in nodes)
    return None if isinstance(action, Drain) else next(found, None)


def _stands_out(world: World, incident: Incident) -> bool:
    """Whether its odd nodes are excluded: for as long as the probe of them may take."""
    since = incident.state_since or incident.opened_at
    bound = timedelta(seconds=world.policy.hangs.probe_s)
    return bool(incident.odd) and not incident.acknowledged and (incident.hangs or world.now - since <= bound)


def _held_by_reservation(world: World, incident: Incident) -> bool:
    node = world.view.nodes.get(incident.node) if world.view is not None else None
    return node is not None and node.draining and is_reason(node.reason, held_reason(incident.id))


def is_silent(world: World, agent: AgentView) -> bool:
    """Whether the agent has not reported for ``silent_after_heartbeats`` of its intervals."""
    return agent.last_heard < silent_before(world, agent.heartbeat_interval_s)


def silent_before(world: World, heartbeat_interval_s: float) -> datetime:
    """Time limit: an agent with this interval is silent if its last report is older."""
    return world.now - timedelta(seconds=heartbeat_interval_s * world.policy.death.silent_after_heartbeats)


def agent_of(world: World, node: str, instance_id: str | None = None) -> AgentView | None:
    """The agent of the node (on that machine) that reported last, if it is not silent."""
    heard = [
        a
        for a in world.agents.get(node, ())
        if (instance_id is None or a.instance_id == instance_id) and not is_silent(world, a)
    ]
    return max(heard, key=lambda a: a.last_heard, default=None)


def unheard_yet(world: World, node: str, instance_id: str | None = None) -> bool:
    """Whether this controller has just started and the node's agent (on that machine) has not reported to it yet: its silence means
    nothing, and no repair may rest on it."""
    return world.frozen is not None and agent_of(world, node, instance_id) is None


def order_to(agent: AgentView, verb: Verb, expires_s: float, args: Mapping[str, Any]) -> SendOrder:
    """An order for this agent in this boot of its machine, and no other."""
    return SendOrder(agent.node, agent.instance_id, agent.boot_id, verb, expires_s, args)


class DrainedBy(StrEnum):
    """Who took a node out of service. The values are part of the record (``by`` of ``node.out_of_service``)."""

    OURS = "ours"
    """The drain, or DOWN, that the store has the mark of, or that is being set now."""
    FOREIGN = "foreign"
    """A person or another tool, also where the reason reads like one of Holdfast's."""
    SLURM = "slurm"
    """slurmctld set it DOWN."""


def drained_by(world: World, node: Node) -> DrainedBy | None:
    """Who took the node out of service; None: it is in service."""
    if not node.out_of_service:
        return None
    if node.down_by_slurm:
        return DrainedBy.SLURM
    if incident_of_reason(node.reason) is None:
        return DrainedBy.FOREIGN
    recorded = is_marked(world.book.marks.get(node.name), node)
    return DrainedBy.OURS if recorded or _being_set(world, node) else DrainedBy.FOREIGN


def is_marked(mark: NodeMark | None, node: Node) -> bool:
    """Whether the node is out of service by the drain of this mark. Slurm adds to its reason in SlurmUser's name and sets its time, when it
    reboots the node and when it sets it DOWN for silence. While a reboot waits to be issued, the reason may be unchanged except for a new
    time."""
    if mark is None:
        return False
    if mark.is_on(node):
        return True
    same = is_reason(without_slurms_words(node.reason), without_slurms_words(mark.reason))
    return same and (node.rebooting or has_slurms_words(node.reason))


def _being_set(world: World, node: Node) -> bool:
    """Whether a step of an open incident is setting this drain, with this reason, and its mark is not stored yet; or the view is older than
    a step that has set or cleared the mark since."""
    incidents = world.book.open_on(node.name)
    intents = [(i.id, intent) for i in incidents for intent in world.book.intents_of(i.id)]
    outdated = any(isinstance(i.action, Drain | SetDown | Undrain) and _not_in_view(world, i) for _, i in intents)
    counts = {IntentState.PLANNED, IntentState.STARTED} | ({IntentState.DONE} if outdated else set())
    return any(i.state in counts and is_reason(node.reason, *_reasons(i.action, number)) for number, i in intents)


def _not_in_view(world: World, intent: Intent) -> bool:
    """The step was done so shortly before the view was read that it may not show it."""
    if world.view is None or intent.state is not IntentState.DONE or intent.finished_at is None:
        return False
    return world.view.read_at - intent.finished_at <= VIEW_LAG


def _reasons(action: Action, incident_id: str) -> tuple[str, ...]:
    """Reason texts of a node, word for word, that a step sets or clears."""
    if isinstance(action, Drain | SetDown):
        return (action.reason, held_reason(incident_id))
    return (action.mark,) if isinstance(action, Undrain) else ()


def drained_by_others(world: World, node: Node) -> bool:
    """Whether an operator or another tool took it out of service: they have to return it."""
    return drained_by(world, node) is DrainedBy.FOREIGN


def drained_by_us(world: World, node: Node) -> bool:
    return drained_by(world, node) is DrainedBy.OURS


def died_while_drained(world: World, view: ClusterView, incident: Incident) -> bool:
    """Its node was ours to drain when it died, and is not DOWN yet. A DOWN that slurmctld has forgotten is not set a second time: the
    jobs of then are over."""
    node = view.nodes[incident.node]
    if not incident.dead or node.down or not drained_by_us(world, node):
        return False
    return done(world.book.attempts(incident.id, steps.set_down(incident.node))) is None


def drain_missing(view: ClusterView, incident: Incident) -> bool:
    """Slurm has forgotten the drain of the incident's node, and the node is in service until it is drained again."""
    return incident.drain_lost_at is not None and not view.nodes[incident.node].out_of_service


def jobs_known(world: World, node: Node) -> bool:
    """Whether it means something that Slurm shows no job on the node. A slurmctld that started cold has forgotten the jobs that run, until
    the node's slurmd has registered, or has had one SlurmdTimeout for that."""
    return node.registered or slurm_settled(world)


def free_of_jobs(view: ClusterView, node: str) -> bool:
    """No job holds the node and it is not COMPLETING."""
    return not view.jobs_on(node) and not view.nodes[node].completing


def checkpoint_of(world: World, job: Job) -> CheckpointRecord | None:
    """The job's reports about its checkpoints: by its own uid, on a node that it holds or held. An agent's report counts for no other job.

    A task of a heterogeneous job reports for its component; the component that saved last counts for all."""
    nodes = _held_ever(world, job)
    said = (world.book.checkpoint_of(part.key.job_id, job.uid, nodes, job.speaks_since) for part in job.components)
    mine = [record for record in said if record is not None]
    return max(mine, key=lambda r: -1 if r.saved_step is None else r.saved_step, default=None)


def restorable_step(world: World, job: Job) -> int | None:
    """The step that the job's next run can resume from, as the job reports: that of its newest checkpoint; for a group of an elastic job
    the last step that it reported, which its peers hold. None: nothing was reported."""
    mine = checkpoint_of(world, job)
    known = [mine.saved_step] if mine is not None else []
    if declares_elastic(job.comment):
        told = world.book.progress_of(job.key.job_id, job.uid, _held_ever(world, job), job.speaks_since)
        known += [record.progress_step for record in told]
    return max((step for step in known if step is not None), default=None)


def _held_ever(world: World, job: Job) -> set[str]:
    """Its nodes now and in the runs that were recovered."""
    runs = (r for r in world.book.recoveries.values() if r.uid == job.uid and job.continues(r.job))
    return {*job.nodes, *(n for r in runs for n in r.nodes_before)}


def reserved_by_its_user(world: World, job: Job) -> bool:
    """It runs in a reservation that is not one of ours."""
    return bool(job.reservation) and not _is_own(world, job.reservation)


def _is_own(world: World, reservation: str) -> bool:
    """A hold of a recovered job, or the spares' reservation."""
    return reservation in world.book.holds or reservation == world.policy.spare_reservation


def reserved_by_others(world: World, node: str, job: Job) -> bool:
    """Whether another reservation has the node at a time that the restarted job would reach: maintenance, a course, another group."""
    return any(node in r.nodes and not _is_own(world, r.name) for r in _in_the_way(world, job))


def kept_for_others(world: World, hold: str, job: Job) -> frozenset[str]:
    """Nodes that other reservations keep for a time that the job would reach, except those of the job's hold.

    Slurm keeps a job in a Holdfast hold off them, except in a hold of an earlier release, which has OVERLAP (docs/slurm-notes.md)."""
    kept = frozenset(n for r in _in_the_way(world, job) if r.name != hold for n in r.nodes)
    own = world.view.reservations.get(hold) if world.view is not None else None
    return kept - frozenset(own.nodes) if own is not None else kept


def _in_the_way(world: World, job: Job) -> list[Reservation]:
    """Reservations of a time that the job, started now, or its hold would reach."""
    reach_s = None if job.time_limit_s is None else max(job.time_limit_s, world.policy.job.hold_duration_s)
    until = None if reach_s is None else world.now + timedelta(seconds=reach_s)
    there = world.view.reservations.values() if world.view is not None else ()
    return [
        r
        for r in there
        if (r.end_time is None or r.end_time > world.now)
        and (r.start_time is None or until is None or r.start_time < until)
    ]


def holds(job: Job) -> bool:
    return job.state in HOLDING_STATES


def last(attempts: tuple[Intent, ...]) -> Intent | None:
    return attempts[-1] if attempts else None


def done(attempts: tuple[Intent, ...]) -> Intent | None:
    """The attempt that succeeded, if any."""
    return next((i for i in reversed(attempts) if i.state is IntentState.DONE), None)


def hour(world: World) -> int:
    """Hour number in the name of a step that may come after its incident was closed: the store keeps such intents for an hour, and an
    attempt in another hour is a separate step."""
    return int(world.now.timestamp()) // STEP_HOUR_S


def failed_for_good(attempts: tuple[Intent, ...]) -> Intent | None:
    """The last attempt of a step, if it failed in a way that repeating cannot fix."""
    latest = last(attempts)
    return latest if latest is not None and latest.state is IntentState.FAILED and not latest.retryable else None
