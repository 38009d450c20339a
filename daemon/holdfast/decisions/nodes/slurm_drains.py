"""Drains that Slurm itself set: those that Holdfast takes over, and their remedy. Pure.

slurmctld drains a node whose prolog or epilog failed, whose tasks did not end, or that registered with less than slurm.conf says. No one
owns such a drain. It is recognised by its text, by the user that set it and only while both are unchanged; a minute later, so that a wave
is seen as one, it becomes an incident's own, and counts for a brake: for ``task_drains`` where a user's job can have caused it, so that no
user blocks repairs for others; else for ``drains`` like any other drain."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.decisions.common import node_incidents, slurm_view
from holdfast.model.book import Change, World
from holdfast.model.event import Event
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState
from holdfast.model.incidents.transitions import Moved, NewIncident, close, open_incident
from holdfast.model.slurm.cluster import Node
from holdfast_checks.result import Remedy, Severity

OWNED_AFTER_S = 60.0
"""The node is out of service already, so nothing is lost by waiting for what else is drained."""
CHECK = "slurm.drained"
_SLURMD_USER = "root"
"""SlurmdUser: slurmstepd drains its node in this name."""


@dataclass(frozen=True, slots=True)
class SlurmDrain:
    """One row of the table."""

    text: re.Pattern[str]
    """The whole reason, in the shapes that Slurm's own code writes, and in no other: 22.05 to 26.05 (docs/slurm-notes.md)."""
    remedy: Remedy
    means: str
    by_slurmd: bool = False
    """Set from the node, in slurmd's name, not by slurmctld."""
    by_job: bool = False
    """Leftovers of a user's job can cause it, on as many nodes as the user has jobs."""


def _row(text: str, remedy: Remedy, means: str, *, by_slurmd: bool = False, by_job: bool = False) -> SlurmDrain:
    return SlurmDrain(re.compile(text, re.ASCII), remedy, means, by_slurmd, by_job)


KNOWN = (
    _row(
        r"Kill task failed(?: \(JobId=\d+ StepId=(?:\d+(?:\+\d+)?|batch|extern|interactive)\))?",
        Remedy.REBOOT,
        "tasks of a job did not end upon SIGKILL",
        by_slurmd=True,
        by_job=True,
    ),
    _row("Duplicate jobid", Remedy.REBOOT, "the node runs a job that slurmctld does not know there"),
    _row(
        r"gres/gpu count reported lower than configured \(\d+ < \d+\)",
        Remedy.REBOOT,
        "slurmd found fewer GPUs than slurm.conf says",
    ),
    _row("Prolog error", Remedy.HUMAN, "the prolog failed"),
    _row("Epilog error", Remedy.HUMAN, "the epilog failed", by_job=True),
    _row(
        r"Low RealMemory \(reported:\d+ < \d+\.\d\d% of configured:\d+\)",
        Remedy.HUMAN,
        "the node has less memory than slurm.conf says",
    ),
    _row("Low TmpDisk", Remedy.HUMAN, "the node has less temporary disk space than slurm.conf says"),
)
"""``Not responding`` and ``Node unexpectedly rebooted`` set a node DOWN: those are silence's (:mod:`silent_nodes`) and a fault's."""


def is_slurms(text: str) -> bool:
    """Whether a node's reason reads as one that Slurm itself sets, and that Holdfast takes over."""
    return any(row.text.fullmatch(text) for row in KNOWN)  # rule prose: Slurm's own words


def recognised(world: World, node: Node) -> SlurmDrain | None:
    """The row that the node's drain is; None: it is not Slurm's own, or no longer, or who SlurmUser is is not known."""
    slurm_user = world.background.slurm_user
    if not slurm_user or "DRAIN" not in node.flags:
        return None
    for row in KNOWN:
        by = (slurm_user, _SLURMD_USER) if row.by_slurmd else (slurm_user,)
        if row.text.fullmatch(node.reason) and node.reason_user in by:  # rule prose: Slurm's own words
            return row
    return None


def due(world: World, incident: Incident) -> bool:
    """Whether the drain may be taken over by now."""
    return world.now - incident.opened_at >= timedelta(seconds=OWNED_AFTER_S)


def follow_slurm_drains(world: World, new_id: Callable[[datetime], str]) -> Change:
    """Open an incident for each node that Slurm itself drained; close one whose drain was cleared before it was taken over."""
    view = slurm_view.fresh_view(world)
    if view is None:
        return Change()
    incidents: list[Incident] = []
    events: list[Event] = []
    dealt_with = {(i.node, i.fault_at) for i in world.book.incidents.values() if i.kind is IncidentKind.SLURM_DRAIN}
    for name, node in sorted(view.nodes.items()):
        row = recognised(world, node)
        if (
            row is None
            or (name, node.reason_time) in dealt_with
            or any(node_incidents.acting(i) or i.acknowledged for i in world.book.open_on(name))
        ):
            continue
        incident, seen = _opened(world, node, row, new_id)
        incidents.append(incident)
        events += seen
    for incident in world.book.open_incidents():
        waits = incident.state is IncidentState.OPEN and incident.ordered is None
        mine = incident.kind is IncidentKind.SLURM_DRAIN and waits
        if mine and incident.node in view.nodes and not view.nodes[incident.node].out_of_service:
            closed, seen = close(incident, world.now, "the drain was cleared before it was taken over")
            incidents.append(closed)
            events += seen
    return Change(incidents=tuple(incidents), events=tuple(events))


def _opened(world: World, node: Node, row: SlurmDrain, new_id: Callable[[datetime], str]) -> Moved:
    record = world.book.nodes.get(node.name)
    new = NewIncident(
        id=new_id(world.now),
        kind=IncidentKind.SLURM_DRAIN,
        node=node.name,
        instance_id=record.instance_id if record is not None else "",
        boot_id=record.boot_id if record is not None else "",
        severity=Severity.DEGRADED,
        remedy=row.remedy,
        check=CHECK,
        headline=f"{CHECK}: Slurm drained the node: {node.reason} ({row.means})",
        fault_at=node.reason_time or world.now,
        by_job=row.by_job,
    )
    return open_incident(new, IncidentState.OPEN, world.now)
