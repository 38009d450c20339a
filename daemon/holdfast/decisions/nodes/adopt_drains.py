"""Adoption of Holdfast's drains that the store does not have: after an outage during a step, or with an empty or older store. Pure.

A drain that Slurm took while its answer was lost is known by its reason, which is the step's own, word for word. A node whose reason names
a Holdfast incident that the store does not know was drained by a previous Holdfast installation. It gets a mark, so that it can be
released, and an incident that waits for an operator: nothing is concluded from a reason alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from holdfast.decisions.common import node_incidents, slurm_view
from holdfast.model.actions.action import Drain, IntentState, Reboot, SetDown, Undrain
from holdfast.model.book import Change, NodeMark, World
from holdfast.model.event import Event
from holdfast.model.ids import held_reason, incident_of_reason, is_reason, is_reboot_of, is_silence_of, slurm_reason
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState
from holdfast.model.incidents.transitions import Detection, Moved, NewIncident, open_incident, raise_to, remark
from holdfast.model.policies.policy import Mode
from holdfast.model.slurm.cluster import Node
from holdfast_checks.result import Remedy, Severity

_SECOND = timedelta(seconds=1)
"""Slurm's times have no fraction."""


def lost_memory(world: World) -> str | None:
    """Reason to pause because the store must be incomplete; None: it seems complete, or no action is taken anyway.

    Slurm has a Holdfast drain without a mark, for an incident newer than every one in the store, or for an open one without a step that
    could have set it: the store was lost, or replaced by an older one. Other steps under way then are not known either (a machine launched,
    a job stopped)."""
    view = slurm_view.fresh_view(world)
    if view is None or world.policy.mode is Mode.OBSERVE or world.book.paused is not None:
        return None
    newest = max(world.book.incidents, default="")
    unknown = {
        name: incident_id
        for name, node in view.nodes.items()
        if node.reason and node.out_of_service and name not in world.book.marks
        if (incident_id := incident_of_reason(node.reason)) is not None
        if incident_id > newest or _set_after_the_backup(world, node) is not None
    }
    if not unknown:
        return None
    shown = ", ".join(f"{name} ({incident_id})" for name, incident_id in sorted(unknown.items()))
    return (
        f"Slurm shows drains of Holdfast's that this store has no record of: {shown}; the store was lost, or is an older copy; check these "
        "nodes and their jobs, then resume (holdfast runbook store-lost)"
    )


_READ_APART = timedelta(seconds=30)
"""Longest time between reading the store and Slurm: a younger drain may be of a step started in between, unless it is from before this
controller first read its store."""


def _set_after_the_backup(world: World, node: Node) -> Incident | None:
    """The open incident of this node that its drain is for, if the store has no step that could have set it. A step is recorded as started
    before Slurm is asked, so the store is older than the drain."""
    incident = world.book.incidents.get(incident_of_reason(node.reason) or "")
    if incident is None or not incident.open or incident.acknowledged or incident.node != node.name:
        return None
    begun = any(
        isinstance(i.action, Drain | SetDown) and i.started_at is not None for i in world.book.intents_of(incident.id)
    )
    marked = node.name in world.book.marks
    return None if begun or marked or _may_be_unread(world, node) else incident


def _may_be_unread(world: World, node: Node) -> bool:
    """Whether the drain is so young that its step may have started after the store was read."""
    at, since = node.reason_time, world.listening_since
    return at is not None and world.now - at < _READ_APART and (since is None or at >= since - _SECOND)


def adopt(world: World) -> Change:
    """Marks and incidents for Holdfast's drains that the store does not have."""
    view = slurm_view.fresh_view(world)
    if view is None:
        return Change()
    incidents: list[Incident] = []
    marks: list[NodeMark] = []
    events: list[Event] = []
    out = {name: node for name, node in view.nodes.items() if node.reason and node.out_of_service}
    for name, node in sorted(out.items()):
        incident_id = incident_of_reason(node.reason)
        mark = world.book.marks.get(name)
        if (
            mark is not None
            and not mark.is_on(node)
            and (_reboot_of_ours(world, mark, node) or is_silence_of(node.reason, mark.reason))
        ):
            marks.append(NodeMark(name, mark.incident_id, node.reason, node.reason_user, node.reason_time))
        if incident_id is None or (mark is not None and mark.is_on(node)):
            continue
        if (known := _set_after_the_backup(world, node)) is not None:
            marks.append(NodeMark(name, incident_id, node.reason, node.reason_user, node.reason_time))
            incident, seen = _drained_since(world, known, node)
            incidents.append(incident)
            events += seen
            continue
        if mark is not None or incident_id in world.book.incidents:
            if incident_id in world.book.incidents and _taken_unheard(world, incident_id, node):
                marks.append(NodeMark(name, incident_id, node.reason, node.reason_user, node.reason_time))
            continue
        marks.append(NodeMark(name, incident_id, node.reason, node.reason_user, node.reason_time))
        incident, seen = _adopted(world, incident_id, node)
        incidents.append(incident)
        events += seen
    return Change(incidents=tuple(incidents), marks=tuple(marks), events=tuple(events))


def _adopted(world: World, incident_id: str, node: Node) -> Moved:
    new = NewIncident(
        id=incident_id,
        kind=IncidentKind.ADOPTED,
        node=node.name,
        severity=Severity.DEGRADED,
        remedy=Remedy.HUMAN,
        check="store.adopted",
        headline=node.reason,
        fault_at=node.reason_time or world.now,
        note="drained by Holdfast, and this store has no record of why (it was lost, or is an older copy): check the node, then resume it",
    )
    text = f"found in Slurm, unknown to the store: {node.reason}"
    return open_incident(new, IncidentState.AWAITING_HUMAN, world.now, Detection(text=text, detail={"adopted": True}))


def _drained_since(world: World, incident: Incident, node: Node) -> Moved:
    """The incident from the backup, whose node was drained since. If the reason is the text that the store would use, its repair continues
    once an operator ends the pause; another text means another fault, which an operator has to judge."""
    text = f"drained after this store's backup was made: {node.reason}"
    if is_reason(node.reason, slurm_reason(incident.id, incident.headline)) and incident.state is IncidentState.OPEN:
        return incident, [remark(incident, world.now, text)]
    graver = replace(incident, remedy=Remedy.HUMAN, severity=_at_least_degraded(incident.severity))
    if incident.state is IncidentState.OPEN:
        return graver, [remark(incident, world.now, text)]
    return raise_to(graver, IncidentState.OPEN, world.now, Detection(text=text, detail={"adopted": True}))


def _at_least_degraded(severity: Severity) -> Severity:
    return severity if severity is Severity.FATAL else Severity.DEGRADED


def _reboot_of_ours(world: World, mark: NodeMark, node: Node) -> bool:
    """Whether the reason is Holdfast's with Slurm's additions: Slurm adds text, a new time and SlurmUser's name for a node that it
    reboots."""
    if not is_reboot_of(node.reason, mark.reason):
        return False
    begun = (i for i in world.book.intents_of(mark.incident_id) if i.started_at is not None)
    return any(isinstance(i.action, Reboot) and i.action.via_slurm and i.action.node == node.name for i in begun)


def _taken_unheard(world: World, incident_id: str, node: Node) -> bool:
    """Whether the node has a drain or DOWN that was started for this open incident and whose outcome was lost: with the exact text, not
    from before it was planned, and not undone since."""
    incident = world.book.incidents[incident_id]
    if not node_incidents.acting(incident) or incident.node != node.name or node.reason_time is None:
        return False
    held = held_reason(incident_id)
    begun = [i for i in world.book.intents_of(incident_id) if i.started_at is not None]
    newest = next((i for i in reversed(begun) if isinstance(i.action, Drain | SetDown | Undrain)), None)
    if newest is None or isinstance(newest.action, Undrain) or newest.state is IntentState.DONE:
        return False  # what is done has its mark
    return any(
        isinstance(i.action, Drain | SetDown)
        and is_reason(node.reason, i.action.reason, held)
        and node.reason_time >= i.planned_at - _SECOND
        for i in begun
    )
