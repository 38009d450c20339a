"""Tripping of brakes: too many nodes drained, or jobs stopped, because of checks within a time. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from holdfast.decisions.brakes import own_word
from holdfast.decisions.brakes.proposing import asked, policy_about
from holdfast.decisions.common import node_incidents, slurm_view
from holdfast.decisions.common.brake_scopes import BrakeScope, scopes
from holdfast.decisions.common.budgets import COUNTED
from holdfast.decisions.common.wording import are, counted
from holdfast.decisions.death import evidence
from holdfast.decisions.nodes import hands_off
from holdfast.decisions.planned import notices
from holdfast.model.actions.action import Action, Drain, HoldJob, Intent, IntentState, Proposal, Requeue, SetDown
from holdfast.model.book import Brake, BrakeKind, World
from holdfast.model.incidents.incident import Incident
from holdfast.model.policies.lookback import BRAKE_LONG_S
from holdfast.model.policies.policy import Mode

_SMALL = 0.05
"""A single job may hold most of the GPUs, and be stopped for its fault; further jobs on less than this share do not count."""


def too_early(world: World) -> frozenset[str]:
    """Incidents of notices that wait until the provider has been polled after a start: if it was never polled, or if a brake would hold
    that number otherwise."""
    waiting = [i for i in world.book.open_incidents() if node_incidents.acting(i) and notices.unasked(world, i)]
    if not waiting:
        return frozenset()
    many = any(_beyond(world, scope, {i.node for i in waiting}) for scope in scopes(world))
    return frozenset(i.id for i in waiting) if world.book.provider is None or many else frozenset()


def _beyond(world: World, scope: BrakeScope, nodes: Iterable[str]) -> bool:
    """Whether a brake on drains would hold this many nodes of the scope."""
    least = min((most for _, most in scope.windows), default=None)
    return least is not None and sum(scope.has(world, node) for node in nodes) > least


def trip(world: World, proposals: tuple[Proposal, ...]) -> tuple[Brake, ...]:
    """Brakes that these proposals, or the suspect nodes behind them, trip now: of the site and of each node set with its own limits. One
    that holds already is not tripped again."""
    tripped = (
        _tripped(world, proposals, kind, scope)
        for scope in scopes(world)
        for kind in BrakeKind
        if not any(brake.holds for brake in scope.brakes(world, kind))
    )
    return tuple(brake for brake in tripped if brake is not None)


def _tripped(world: World, proposals: tuple[Proposal, ...], kind: BrakeKind, scope: BrakeScope) -> Brake | None:
    match kind:
        case BrakeKind.DRAINS | BrakeKind.TASK_DRAINS:
            reason = _too_many_suspects(world, proposals, kind, scope)
        case BrakeKind.JOB_STOPS:
            reason = _too_many_stops(world, proposals, scope)
        case BrakeKind.PLANNED_STOPS:
            reason = _too_many_planned(world, proposals, scope)
    if reason is None:
        return None
    known = scope.node_set is not None and world.view is not None
    return Brake(kind, world.now, reason, None, scope.name, scope.nodes(world), nodes_known=known)


def _too_many_suspects(world: World, proposals: tuple[Proposal, ...], kind: BrakeKind, scope: BrakeScope) -> str | None:
    """Distinct nodes drained in the window, together with every other suspect; what an operator released no longer counts. None: few
    enough. What a user's job can have caused counts for its own brake alone."""

    early = too_early(world)

    def counts(incident_id: str, node: str) -> bool:
        incident = world.book.incidents.get(incident_id)
        users = incident is not None and incident.users_doing
        if incident is not None and incident.only_ordered:
            return False  # an operator's will is no sign of a common cause
        its_own = users is (kind is BrakeKind.TASK_DRAINS) and not (
            _planned(world, incident_id) or incident_id in early
        )
        return its_own and scope.has(world, node)

    taken = [p for p in proposals if isinstance(p.action, Drain | SetDown) and counts(p.incident_id, p.action.node)]
    if not taken or not scope.windows:
        return None
    released = _released(world, kind, scope)
    proposed = {
        p.action.node
        for p in taken
        if isinstance(p.action, Drain | SetDown)
        and _is_news(world, kind, scope, p.incident_id)
        and not _only_asked(world, p)
        and not _was_drained(world, p.incident_id, world.now)
    }
    for window_s, most in scope.windows:
        since = max(world.now - timedelta(seconds=window_s), released)
        drained = proposed | {
            i.action.node
            for i in world.book.intents.values()
            if isinstance(i.action, Drain | SetDown)
            and i.state in COUNTED
            and i.planned_at > since
            and counts(i.incident_id, i.action.node)
            and not _drained_again(world, i)
        }
        suspect = (i for i in world.book.open_incidents() if node_incidents.acting(i) and i.opened_at > since)
        nodes = drained | {i.node for i in suspect if counts(i.id, i.node) and hands_off.holds(world, i) is None}
        if len(nodes) > most:
            return (
                f"{counted(len(nodes), 'node')}{scope.of_set} {are(len(nodes))} suspect within {window_s / 60:.0f} min, more than {most}: "
                "look for one cause"
            )
    return None


def _drained_again(world: World, intent: Intent) -> bool:
    """Slurm had lost the drain: the node was out of service for this incident before, so it is no new suspect."""
    return isinstance(intent.action, Drain) and _was_drained(world, intent.incident_id, intent.planned_at)


def _was_drained(world: World, incident_id: str, before: datetime) -> bool:
    earlier = (i for i in world.book.intents_of(incident_id) if i.planned_at < before)
    return any(isinstance(i.action, Drain | SetDown) and i.state is IntentState.DONE for i in earlier)


def _is_news(world: World, kind: BrakeKind, scope: BrakeScope, incident_id: str) -> bool:
    """Whether the incident counts for the brake however old it is: Slurm may have been away, or Holdfast paused, for longer than the
    windows. Not one that an operator saw when they released the brake."""
    incident, released_at = world.book.incidents.get(incident_id), _released_at(world, kind, scope)
    return incident is not None and (released_at is None or incident.opened_at > released_at)


def _only_asked(world: World, proposal: Proposal) -> bool:
    """Whether the step waits for an operator's accept, or is only recorded by a node set: decided again in each turn for days, it is no
    news. The fault itself counts in the windows."""
    if world.policy.mode is Mode.OBSERVE:
        return False
    policy = policy_about(world, proposal)
    return policy.mode is Mode.OBSERVE or asked(world, policy, proposal) is not None


def _opened_by(world: World, incident_id: str, at: datetime) -> bool:
    incident = world.book.incidents.get(incident_id)
    return incident is not None and incident.opened_at <= at


def _too_many_planned(world: World, proposals: tuple[Proposal, ...], scope: BrakeScope) -> str | None:
    """Reason to trip: nodes taken out on notices that only their agents report. An agent or a check that is wrong on every node looks the
    same. None: few enough."""
    early = too_early(world)
    acting = (i for i in world.book.open_incidents() if node_incidents.acting(i) and scope.has(world, i.node))
    alone = {i.id: i for i in acting if notices.by_agent_alone(world, i) and i.id not in early}
    if not any((isinstance(p.action, Drain) or p.stops_running_job) and p.incident_id in alone for p in proposals):
        return None
    released = _released(world, BrakeKind.PLANNED_STOPS, scope)
    taken = (p for p in proposals if (isinstance(p.action, Drain) or p.stops_running_job) and not _only_asked(world, p))
    going = {p.incident_id for p in taken} & alone.keys()
    proposed = {alone[i].node for i in going if _is_news(world, BrakeKind.PLANNED_STOPS, scope, i)}
    for window_s, most in scope.windows:
        since = max(world.now - timedelta(seconds=window_s), released)
        nodes = {i.node for i in alone.values() if i.opened_at > since} | proposed
        if len(nodes) > most:
            who = f"the agents of {counted(len(nodes), 'node')}{scope.of_set}"
            return (
                f"{who} say within {window_s / 60:.0f} min that machines go, more than {most}, "
                "and the provider's API does not: look at what they read"
            )
    return None


def _too_many_stops(world: World, proposals: tuple[Proposal, ...], scope: BrakeScope) -> str | None:
    """Reason to trip: nodes whose running jobs were stopped because of checks in the last hour, including this cycle. None: few enough.

    Nodes, not jobs: whatever runs on one node, its fault is one cause. A user's many small jobs on a shared node trip nothing, nor do large
    ones side by side on the same nodes: the share of GPUs is that of the jobs of two nodes at least."""
    since = max(world.now - timedelta(seconds=BRAKE_LONG_S), _released(world, BrakeKind.JOB_STOPS, scope))
    early = too_early(world)
    new = [
        p
        for p in proposals
        if p.stops_running_job
        and scope.has(world, _node_of(world, p.incident_id))
        and not _has_limits_of_its_own(world, p.incident_id)
        and _is_news(world, BrakeKind.JOB_STOPS, scope, p.incident_id)
        and not (_only_asked(world, p) and _opened_by(world, p.incident_id, since))
        and not _goes(world, p.incident_id)
        and p.incident_id not in early
    ]
    if not new:
        return None
    recent = (i for i in world.book.intents.values() if i.state in COUNTED and i.planned_at > since)
    past = [i for i in recent if scope.has(world, _node_of(world, i.incident_id)) and _stopped(world, i)]
    nodes = {_node_of(world, each) for each in (*(i.incident_id for i in past), *(p.incident_id for p in new))}
    most = scope.stopped_nodes
    if most is not None and len(nodes) > most:
        return (
            f"running jobs of {counted(len(nodes), 'node')}{scope.of_set} would be stopped because of findings within an hour, "
            f"more than {most}"
        )
    return None if scope.node_set is not None else _too_many_gpus(world, past, new)


def _too_many_gpus(world: World, past: Iterable[Intent], new: Iterable[Proposal]) -> str | None:
    """Reason to trip: the share of the cluster's GPUs whose jobs would be stopped. None: few enough."""
    sizes, of_node = {}, dict[str, dict[int, int]]()
    for incident_id, action in (*((i.incident_id, i.action) for i in past), *((p.incident_id, p.action) for p in new)):
        job, gpus = _job_id(action), _gpus(world, action)
        sizes[job] = of_node.setdefault(_node_of(world, incident_id), {})[job] = gpus
    total = sum(world.view.nodes[n].gpu_count for n in slurm_view.fleet(world)) if world.view is not None else 0
    besides_largest = sum(sizes.values()) - max(sum(jobs.values()) for jobs in of_node.values())
    if (
        besides_largest > total * _SMALL
        and sum(sizes.values()) > total * world.policy.brake.stopped_gpu_share_60min > 0
    ):
        return f"jobs on {sum(sizes.values())} of {total} GPUs would be stopped because of findings within an hour"
    return None


def _node_of(world: World, incident_id: str) -> str:
    """The node at fault; of an incident that is not known its id stands for it."""
    incident = world.book.incidents.get(incident_id)
    return incident.node if incident is not None and incident.node else incident_id


def _has_limits_of_its_own(world: World, incident_id: str) -> bool:
    """Whether users can cause it: a job's own reports are limited by user, its effects on a node by ``task_drains``."""
    incident = world.book.incidents.get(incident_id)
    return own_word.about(world, incident_id) is not None or (incident is not None and incident.users_doing)


def _job_id(action: Action) -> int:
    return action.job.job_id if isinstance(action, Requeue | HoldJob) else 0


def _stopped(world: World, intent: Intent) -> bool:
    """Whether this intent stopped a running job because of a check's verdict."""
    action = intent.action
    no_checks_word = _planned(world, intent.incident_id) or _has_limits_of_its_own(world, intent.incident_id)
    if not isinstance(action, Requeue) or no_checks_word:
        return False
    recovery = world.book.recovery_of(action.job, action.restarts)
    return recovery is not None and recovery.stops_running_job


def _planned(world: World, incident_id: str) -> bool:
    """On a notice alone, or power that is off, which the brakes on checks do not count."""
    incident = world.book.incidents.get(incident_id)
    return incident is not None and _not_a_checks_word(world, incident)


def _not_a_checks_word(world: World, incident: Incident) -> bool:
    return notices.by_notice_alone(world, incident) or evidence.died_of_power(world, incident)


def _goes(world: World, incident_id: str) -> bool:
    """The machine goes soon, by the provider's API or by a notice alone."""
    incident = world.book.incidents.get(incident_id)
    if incident is None or not notices.goes_soon(world, incident_id):
        return False
    return bool(incident.notice) or notices.by_notice_alone(world, incident)


def _gpus(world: World, action: Action) -> int:
    if not isinstance(action, Requeue | HoldJob):
        return 0
    job = world.view.jobs.get(action.job.job_id) if world.view is not None else None
    return sum(len(m) for m in job.gpu_indices.values()) if job is not None else 0


def _released_at(world: World, kind: BrakeKind, scope: BrakeScope) -> datetime | None:
    """When an operator last released it; None: never, as far as is known."""
    return max((b.released_at for b in scope.brakes(world, kind) if b.released_at is not None), default=None)


def _released(world: World, kind: BrakeKind, scope: BrakeScope) -> datetime:
    return _released_at(world, kind, scope) or world.now - timedelta(seconds=BRAKE_LONG_S)
