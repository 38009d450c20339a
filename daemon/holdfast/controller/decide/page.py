"""What an operator is told of silence that nothing may be concluded from: many nodes at once, nodes without a witness, slurmctld. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from holdfast.controller import facts, silence
from holdfast.controller.death import brake, domains, evidence
from holdfast.controller.decide.part import Part
from holdfast.model import steps
from holdfast.model.action import Notify, Proposal
from holdfast.model.book import World
from holdfast.model.cluster import ClusterView
from holdfast.model.ids import UPKEEP
from holdfast.model.incident import Incident, IncidentState
from holdfast.model.lookback import SILENCE_TOLD_S
from holdfast.model.steps import Step

AFTER_S = 60.0
"""Silence of less than this is not told of."""
_NAMED = 8
"""So many nodes are named, more are counted."""


def page(world: World) -> Part:
    """One notification for each cause, while it is young."""
    if world.frozen is not None:
        return Part()
    view = facts.fresh_view(world)
    return Part(tuple(_slurm(world) if view is None else _nodes(world, view)))


def _slurm(world: World) -> list[Proposal]:
    since = world.view.read_at if world.view is not None else world.listening_since
    if since is None or not _due(world, since):
        return []
    subject = f"slurmctld has not answered since {since:%H:%M:%S} UTC"
    body = (
        f"{subject}. Nothing is drained, requeued, repaired or ended until it answers; faults are recorded. After its return what it shows "
        "of nodes is not used for one SlurmdTimeout. Check: scontrol ping; holdfast doctor"
    )
    return _tell(world, steps.notify_slurm_silent(since), subject, body)


def _nodes(world: World, view: ClusterView) -> list[Proposal]:
    silent = silence.silent_nodes(world)
    if not silent or silence.freeze_reason(world, silent) is not None:
        return []
    proposals: list[Proposal] = []
    groups = brake.groups(world, silent)
    for group in groups:
        if _due(world, group.since):
            body = (
                f"{group.text}, more than {group.most} at once: one cause. None of them is set DOWN, rebooted or replaced until the "
                f"provider shows its power off. Nodes: {_names(group.nodes)}. Look at their network and power; holdfast nodes"
            )
            proposals += _tell(world, steps.notify_silent(group.where, group.since), group.text, body)
    held = brake.braked(groups)
    quiet = set(silent)
    for incident in world.book.open_incidents():
        if incident.state is IncidentState.SUSPECTED and incident.node in quiet and incident.node not in held:
            proposals += _without_witness(world, view, incident)
    return proposals


def _without_witness(world: World, view: ClusterView, incident: Incident) -> list[Proposal]:
    why = domains.why_no_witness(world, view, incident.node) if incident.node in view.nodes else None
    since = evidence.last_heard(world, incident)
    if why is None or not _due(world, since) or evidence.power_off(world, incident) is not None:
        return []
    advances = any(evidence.advances(world, job, frozenset({incident.node})) for job in view.jobs_on(incident.node))
    subject = f"{incident.node} does not report{'; its job advances' if advances else ''}"
    body = (
        f"{subject}. No peer can bear witness, since {why}: it is held as it is. holdfast incident show {incident.id}"
    )
    return _tell(world, steps.notify_silent(incident.node, since), subject, body)


def _due(world: World, since: datetime) -> bool:
    """Long enough for a page, and too young for the page to have been forgotten."""
    waited = world.now - since
    return timedelta(seconds=AFTER_S) <= waited < timedelta(seconds=SILENCE_TOLD_S)


def _tell(world: World, step: Step, subject: str, body: str) -> list[Proposal]:
    if not world.may_try(UPKEEP, step):
        return []
    return [Proposal(UPKEEP, step, Notify(subject, body), subject, order=95)]


def _names(nodes: Iterable[str]) -> str:
    ordered = sorted(nodes)
    more = f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else ""
    return ", ".join(ordered[:_NAMED]) + more
