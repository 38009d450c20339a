"""Open incidents whose node Slurm does not show: it left slurm.conf, or was never in it. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from holdfast.decisions.common import attempted_steps
from holdfast.decisions.machines import replacement
from holdfast.decisions.repair import repair_progress
from holdfast.model.actions import steps
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.incidents.transitions import Moved, close, move, remark

PATIENCE = timedelta(hours=1)  # rule undeclared-window: of an open incident
"""A repair waits this long for its node: slurm.conf is edited in steps, and slurmctld restarted more than once meanwhile."""


def follow(world: World, incident: Incident) -> Moved:
    """Slurm forgets the drain of a node that leaves slurm.conf: back again, it would serve. One that stays away is left to an operator, and
    what was launched for it is given back (the attempt is over), unless it is all that the node has."""
    node, waits = incident.node, incident.state is not IncidentState.AWAITING_HUMAN
    if not incident.took_node_out or incident.acknowledged:
        return replace(incident, note=f"Slurm knows no node {node}: check the agent's node name"), []
    if attempted_steps.done(world.book.attempts(incident.id, steps.undrain(node))) is not None:
        return close(incident, world.now, f"{node} was back in service, then left slurm.conf")
    if incident.drain_lost_at is None:
        text = f"Slurm no longer shows {node}, and so has forgotten its drain: it is drained again once it is back"
        note = f"Slurm no longer shows {node}: the repair waits for it" if waits else incident.note
        return replace(incident, note=note, drain_lost_at=world.now), [remark(incident, world.now, text)]
    if not waits or not overdue(world, incident) or replacement.has_taken_over(world, incident):
        return incident, []
    note = (
        f"Slurm has not shown {node} for an hour, its repair is given up: if it was taken out of slurm.conf for good, close the incident; "
        "if it comes back, it is drained again"
    )
    return move(repair_progress.attempt_over(incident), IncidentState.AWAITING_HUMAN, world.now, note)


def overdue(world: World, incident: Incident) -> bool:
    """Whether the repair has waited for as long as it does for a node that Slurm does not show."""
    lost_at = incident.drain_lost_at
    return lost_at is not None and world.now - lost_at >= PATIENCE
