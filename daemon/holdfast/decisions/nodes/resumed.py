"""Resume of a node with an open incident: by an operator, or because slurmctld lost its drain. Pure.

slurmctld forgets a node that leaves slurm.conf, and everything when it starts cold (``slurmctld -c``, a lost StateSaveLocation). A plain
restart, a reconfiguration and a takeover by a backup keep all states. So the drain was forgotten if Slurm did not show the node for a
while, or if slurmctld started after the drain was set and shows no job and no drain that is older than its start. In all other cases an
operator resumed it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from holdfast.decisions.common import node_agents, slurm_view
from holdfast.model.actions import steps
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.slurm.cluster import ClusterView, Node

SKEW = timedelta(seconds=1)
"""Slurm's times have no fraction, and its host's clock may differ."""
AGENT_STARTS_S = 60.0
"""Wait this long for the agent's first report after a node's slurmd has started: a machine that boots starts both."""


class Resumed(StrEnum):
    """Reason why a node that was out of service for an incident is in service."""

    BY_HUMAN = "by_human"
    """An operator, or a tool of theirs, resumed it: they trust the node."""
    FORGOTTEN = "forgotten"
    """slurmctld lost the drain: no one has decided anything."""
    UNKNOWN = "unknown"
    """slurmctld started meanwhile, nothing shows whether it kept its states, and no one watched."""


def expects_drain(world: World, incident: Incident) -> bool:
    """Whether its node was seen out of service and must stay so: Holdfast does not return it yet."""
    if not incident.took_node_out or incident.acknowledged:
        return False
    returns = world.book.attempts(incident.id, steps.undrain(incident.node))
    return not (incident.state is IncidentState.VALIDATING and returns)


def up_again(world: World, view: ClusterView, incident: Incident) -> bool:
    """Whether the node serves again after slurmctld set it DOWN before any action on the incident. No slurmd ends that on its own: an
    operator resumed it, unless slurmctld lost its state (:func:`resumed`)."""
    node, seen = view.nodes[incident.node], world.seen_down.get(incident.node)
    if incident.state is not IncidentState.OPEN or incident.acknowledged or seen is None or node.out_of_service:
        return False
    needs_a_resume = {0, 1} if seen.rebooted else {0}
    return node.registered and seen.last >= incident.opened_at and world.background.return_to_service in needs_a_resume


def in_question(world: World) -> bool:
    """Whether a node is seen in service for which slurmctld's start time is needed."""
    view = slurm_view.fresh_view(world)
    return view is not None and any(
        i.drain_lost_at is None
        and (node := view.nodes.get(i.node)) is not None
        and not node.out_of_service
        and (expects_drain(world, i) or up_again(world, view, i))
        for i in world.book.open_incidents()
    )


def resumed(world: World, view: ClusterView, incident: Incident) -> Resumed:
    """Reason why the incident's node is in service, as the view shows it."""
    if incident.drain_lost_at is not None:
        return Resumed.FORGOTTEN
    started_at = world.slurmctld_started_at
    before = Before(started_at, world.now) if started_at is not None else None
    if before is None or not before.holds(_drained_at(world, incident)) or kept_states(view, before):
        return Resumed.BY_HUMAN
    down = None if incident.took_node_out else world.seen_down.get(incident.node)
    seen_at = world.last_out.get(incident.node) if down is None else down.last
    if seen_at is None:
        return Resumed.UNKNOWN
    return Resumed.BY_HUMAN if seen_at > before.started_at + SKEW else Resumed.FORGOTTEN


def _drained_at(world: World, incident: Incident) -> datetime:
    """Time of the drain by Slurm's own clock, if the drain is Holdfast's; for a node that was only DOWN, when that was first seen."""
    seen = world.seen_down.get(incident.node)
    if seen is not None and not incident.took_node_out:
        return seen.since
    mark = world.book.marks.get(incident.node)
    if mark is not None and mark.incident_id == incident.id and mark.time is not None:
        return mark.time
    return incident.state_since or incident.opened_at


@dataclass(frozen=True, slots=True)
class Before:
    """Test for times before slurmctld's start."""

    started_at: datetime
    now: datetime

    def holds(self, at: datetime) -> bool:
        """Whether Slurm's time lies before the start. A time in the future is from before the clock was set back."""
        return at < self.started_at or at > self.now + SKEW


def kept_states(view: ClusterView, before: Before) -> bool:
    """Whether slurmctld shows a job or a drain from before its start. ``slurmctld -c`` leaves neither; it keeps reservations (seen on
    22.05), so they do not count."""
    times = (*(job.key.submit_time for job in view.jobs.values()), *(node.reason_time for node in view.nodes.values()))
    return any(at is not None and before.holds(at) for at in times)


def may_yet_speak(world: World, node: Node) -> bool:
    """Whether slurmd has started just now, or not yet (no job starts there then), and no agent has reported since: the machine may be
    identified within the minute."""
    started_at = node.slurmd_start_time
    if started_at is None:
        return True
    agent = node_agents.agent_of(world, node.name)
    heard = agent is not None and agent.last_heard >= started_at
    return not heard and abs(world.now - started_at) < timedelta(seconds=AGENT_STARTS_S)
