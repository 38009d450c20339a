"""Notifications about silence without a verdict: many nodes at once, or one that is neither dead nor alive. Pure.

Each controller notifies on its own about a slurmctld that does not answer (:mod:`holdfast.head.pager`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from holdfast.decisions.common import slurm_view
from holdfast.decisions.common.part import Part
from holdfast.decisions.death import domains, evidence
from holdfast.decisions.death.known import known
from holdfast.decisions.silence import common_cause, silent_nodes
from holdfast.model.actions import steps
from holdfast.model.actions.action import IntentState, Notify, Proposal
from holdfast.model.actions.steps import Step
from holdfast.model.book import World
from holdfast.model.conditions import ConditionKind
from holdfast.model.ids import UPKEEP
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.notice import NoticeLevel, Topic
from holdfast.model.policies.lookback import SILENCE_TOLD_S
from holdfast.model.slurm.cluster import ClusterView

AFTER_S = 60.0
"""Shorter silence is not notified."""
UNDECIDED_S = 300.0
"""A node that is silent for this long, and that its peers and its provider were asked about some ten times, is not decided about soon."""
_NAMED = 8
"""Most nodes named; the others are only counted."""


def page(world: World) -> Part:
    """One notification for each cause, and again in each hour of it."""
    if world.frozen is not None:
        return Part()
    view = slurm_view.fresh_view(world)
    return Part(tuple(_nodes(world, view)) if view is not None else ())


def subjects(world: World, view: ClusterView, silent: Collection[str]) -> dict[str, tuple[str, ...]]:
    """What a notification may be about: a failure domain, the cluster or a node → the nodes in it that do not report."""
    if not silent:
        return {}
    groups = common_cause.groups(world, silent)
    alone = {i.node: (i.node,) for i in _alone(world, view, silent, groups)}
    return {**alone, **{group.where: group.silent for group in groups}}


def _alone(
    world: World, view: ClusterView, silent: Collection[str], groups: tuple[common_cause.SilentGroup, ...]
) -> list[Incident]:
    """Suspected nodes that belong to no group."""
    held, quiet = common_cause.braked(groups), set(silent)
    mine = (i for i in world.book.open_incidents() if i.state is IncidentState.SUSPECTED and i.node in quiet)
    return [i for i in mine if i.node in view.nodes and i.node not in held]


def _nodes(world: World, view: ClusterView) -> list[Proposal]:
    silent = silent_nodes.silent_nodes(world)
    if not silent or silent_nodes.freeze_reason(world, silent) is not None:
        return []
    groups, told = common_cause.groups(world, silent), _Told(world)
    proposals = [
        _message(world, group.where, step, group.text, _body(group), tuple(sorted(group.nodes)))
        for group in groups
        if _due(world, group.since, AFTER_S)
        and (step := told.next(group.where, common_cause.began(world, silent, group), _size(group))) is not None
    ]
    for incident in _alone(world, view, silent, groups):
        proposals += _undecided(world, view, incident, told)
    return proposals


def _size(group: common_cause.SilentGroup) -> int:
    """Size class of a group: a group of four times as many nodes is notified again, from four on."""
    return max(0, len(group.silent).bit_length() - 1) // 2


def _body(group: common_cause.SilentGroup) -> str:
    where = f"Nodes: {_names(group.nodes)}. Check their network and power; holdfast nodes"
    if group.unseen:
        return f"{group.reason}. If it is dead: power-cycle it. {where}"
    if group.machines_only:
        return (
            f"{group.text}. They fell silent within ten minutes of each other, which may have one cause. No machine of theirs is rebooted "
            f"or replaced until the provider shows its power off. One that is dead: power-cycle it. {where}"
        )
    return (
        f"{group.text}, more than {group.most} at once: one cause. None of them is set DOWN, rebooted or replaced until the provider shows "
        f"its power off. {where}"
    )


def _undecided(world: World, view: ClusterView, incident: Incident, told: _Told) -> list[Proposal]:
    """A node that is neither back nor found dead: no peer can bear witness, their answers say nothing, or its kernel answers while its
    agent does not."""
    node, since = incident.node, evidence.last_heard(world, incident)
    if not _due(world, since, AFTER_S) or (step := told.next(node, since)) is None:
        return []
    why = domains.why_no_witness(world, view, node)
    hopeless = why is not None and evidence.power_off(world, incident) is None
    if not hopeless and not _due(world, since, UNDECIDED_S):
        return []
    advances = any(evidence.advances(world, job, frozenset({node})) for job in view.jobs_on(node))
    subject = f"{node} does not report{'; its job advances' if advances else ''}"
    witness = f" No peer can bear witness, since {why}." if why is not None else ""
    body = (
        f"{node}: its agent has been silent for {(world.now - since).total_seconds() / 60:.0f} min; {known(world, view, incident).text}."
        f"{witness} That is not enough to call it dead, and nothing is done to it. Check its console. If it works: systemctl restart "
        "holdfast-agent on it. If it hangs: power-cycle it; it then reports, or is found dead, and its jobs recover. "
        f"holdfast incident show {incident.id}"
    )
    return [_message(world, node, step, subject, body, (node,))]


class _Told:
    """Notifications about silence within the last hour; read from the world once for all nodes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._hour_ago = world.now - timedelta(seconds=SILENCE_TOLD_S)
        self._told = [
            i
            for i in world.book.intents_of(UPKEEP)
            if i.planned_at >= self._hour_ago and i.state not in (IntentState.FAILED, IntentState.WITHHELD)
        ]

    def next(self, where: str, since: datetime, size: int = 0) -> Step | None:
        """The notification that is due now; None: one of no fewer nodes was sent less than an hour ago, since the silence began."""
        step = steps.notify_silent(where, since, _hours(self._world, since), size)
        told = (steps.size_told(i.step, where) for i in self._told if i.planned_at >= since and i.step != step)
        if any(of is not None and of >= size for of in told) or not self._world.may_try(UPKEEP, step):
            return None
        return step


def _due(world: World, since: datetime, after_s: float) -> bool:
    return world.now - since >= timedelta(seconds=after_s)


def _hours(world: World, since: datetime) -> int:
    return int((world.now - since).total_seconds() // SILENCE_TOLD_S)


def _message(world: World, where: str, step: Step, subject: str, body: str, nodes: tuple[str, ...]) -> Proposal:
    lasts = world.conditions.key(ConditionKind.SILENCE, where)
    notify = Notify(subject, body, NoticeLevel.NEEDS_SOMEBODY, Topic.NODES_DO_NOT_REPORT, nodes, lasts)
    return Proposal(UPKEEP, step, notify, subject, order=95)


def _names(nodes: Iterable[str]) -> str:
    ordered = sorted(nodes)
    more = f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else ""
    return ", ".join(ordered[:_NAMED]) + more
