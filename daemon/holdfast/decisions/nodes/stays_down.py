"""Nodes that slurmctld itself set DOWN and that stay so although they report: an operator is notified to resume them. Pure.

``ReturnToService`` decides which DOWN nodes Slurm brings back; where it does not, the site wants an operator to do so, and Holdfast does
not overrule that. A node that an operator rebooted and that does not come back is reported in the same way: its machine is the operator's.
Each such node gets an incident that is only watched: no action is taken for it, and a fault or a death of the node is a separate incident.
It is over when the node serves, is drained, or is DOWN for another reason."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from holdfast.decisions.common import node_agents, node_drains, node_incidents, slurm_view
from holdfast.decisions.common.node_drains import DrainedBy
from holdfast.decisions.nodes import hands_off
from holdfast.model.book import Change, World
from holdfast.model.event import Event
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState
from holdfast.model.incidents.transitions import Moved, NewIncident, close, open_incident
from holdfast.model.slurm.cluster import Node
from holdfast_checks.result import Remedy, Severity

AFTER_S = 300.0
"""Time that a node is DOWN and reports: slurmctld asks a node that it lost to register at least this often (a third of SlurmdTimeout)."""
REBOOT_S = 3600.0
"""This long after Slurm started an operator's reboot, its machine should be up, whatever ResumeTimeout is."""
CHECK = "slurm.down"


def follow_stays_down(world: World, new_id: Callable[[datetime], str]) -> Change:
    """Open an incident for each node that stays DOWN, once for each DOWN; close those of nodes that do not."""
    view = slurm_view.fresh_view(world)
    if view is None or world.frozen is not None or not slurm_view.slurm_settled(world):
        return Change()
    incidents: list[Incident] = []
    events: list[Event] = []
    known = {(i.node, i.fault_at) for i in world.book.incidents.values() if is_about(i)}
    for incident in world.book.open_incidents():
        over = _over(view.nodes.get(incident.node), incident) if is_about(incident) else None
        if over is not None:
            closed, seen = close(incident, world.now, over)
            incidents.append(closed)
            events += seen
    for name, node in sorted(view.nodes.items()):
        if (node.down or node.reboot_issued) and (name, node.reason_time) not in known and _stays(world, node):
            opened, seen = _opened(world, node, new_id)
            incidents.append(opened)
            events += seen
    return Change(incidents=tuple(incidents), events=tuple(events))


def is_about(incident: Incident) -> bool:
    """Whether the incident is about a node that stays DOWN: nothing is wrong with it that Holdfast knows of."""
    return incident.kind is IncidentKind.SLURM_DRAIN and incident.severity is Severity.WARNING


def _over(node: Node | None, incident: Incident) -> str | None:
    """Reason why the node does not stay DOWN for this; None: it does."""
    if node is None:
        return "Slurm no longer shows the node"
    if not (node.out_of_service or node.reboot_issued):
        return "the node serves again"
    return "the node is out of service for another reason" if node.reason_time != incident.fault_at else None


def _stays(world: World, node: Node) -> bool:
    """Whether slurmctld's own reason is on the node, unchanged, long enough that no slurmd will bring it back; it is not in an operator's
    hands, and no action is taken on an incident of it. A reboot that timed out may also never end: such a node is not judged by its
    silence."""
    by_slurm = node.down_by_slurm or node.reboot_timed_out or node.reboot_issued
    if not by_slurm or node.reason_time is None or node.reason_user != world.background.slurm_user:
        return False
    if node_drains.drained_by(world, node) is DrainedBy.OURS or any(
        node_incidents.acting(i) for i in world.book.open_on(node.name)
    ):
        return False
    hands, agent = hands_off.on(world, node.name), node_agents.agent_of(world, node.name)
    if node.reboot_issued:
        only_that = hands is not None and hands.hands is hands_off.Hands.REBOOT
        return only_that and agent is None and _since(world, node.reason_time, REBOOT_S)
    if hands is not None and hands.holds_incidents:
        return False
    if agent is None:
        return node.reboot_timed_out and _since(world, node.reason_time, world.policy.maintenance.grace_s)
    return _since(world, max(node.reason_time, agent.first_heard), AFTER_S)


def _since(world: World, at: datetime, seconds: float) -> bool:
    return world.now - at >= timedelta(seconds=seconds)


def _opened(world: World, node: Node, new_id: Callable[[datetime], str]) -> Moved:
    record = world.book.nodes.get(node.name)
    new = NewIncident(
        id=new_id(world.now),
        kind=IncidentKind.SLURM_DRAIN,
        node=node.name,
        instance_id=record.instance_id if record is not None else "",
        boot_id=record.boot_id if record is not None else "",
        severity=Severity.WARNING,
        remedy=Remedy.HUMAN,
        check=CHECK,
        headline=f"{CHECK}: Slurm {'reboots the node and does not hear it' if node.reboot_issued else 'set the node DOWN'}: {node.reason}",
        fault_at=node.reason_time or world.now,
        note=f"check the node, then scontrol update nodename={node.name} state=resume",
    )
    return open_incident(new, IncidentState.WATCHING, world.now)
