"""Incidents whose node is in service but should not be: an operator's resume, or a drain that slurmctld forgot. Pure."""

from __future__ import annotations

from dataclasses import replace

from holdfast.decisions.common import node_incidents
from holdfast.decisions.machines import serving_now
from holdfast.decisions.nodes.resumed import Resumed, expects_drain, resumed, up_again
from holdfast.decisions.repair import machine_gone, repair_progress
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident, IncidentState
from holdfast.model.incidents.transitions import Moved, close, move, remark
from holdfast.model.slurm.cluster import ClusterView

_S = IncidentState


def in_service(world: World, view: ClusterView, incident: Incident) -> Moved | None:
    """An incident whose node should be out of service, and is not. None: it is out, or goes back by a step of ours."""
    if up_again(world, view, incident):
        return _trusted(world, view, incident)
    if not expects_drain(world, incident) or view.nodes[incident.node].out_of_service:
        return None
    if view.nodes[incident.node].asleep:
        return _put_to_sleep(world, incident)
    found = resumed(world, view, incident)
    if found is not Resumed.BY_HUMAN and (other := serving_now.successor(world, incident)) is not None:
        text = f"another machine serves {incident.node} now: {other} in place of {incident.serving_id}, which had the fault"
        return close(incident, world.now, text)
    match found:
        case Resumed.BY_HUMAN:
            return _put_back(world, incident)
        case Resumed.FORGOTTEN if incident.drain_lost_at is not None:
            return incident, []
        case Resumed.FORGOTTEN:
            text = f"slurmctld has forgotten the drain of {incident.node} ({_cold(world)}): it is drained again"
            return replace(incident, drain_lost_at=world.now, note=_DRAINED_AGAIN), [remark(incident, world.now, text)]
        case Resumed.UNKNOWN:
            return _in_doubt(world, incident)


def _put_to_sleep(world: World, incident: Incident) -> Moved | None:
    """Slurm removes a node's drain as it powers the node down (seen on 22.05): that is no operator's resume. None: already recorded."""
    if incident.drain_lost_at is not None:
        return None
    note = "powered down through Slurm, which took its drain away: it is drained again once it is up"
    text = f"{incident.node} was {note}"
    return replace(incident, drain_lost_at=world.now, note=note), [remark(incident, world.now, text)]


_DRAINED_AGAIN = "slurmctld has forgotten its drain: it is drained again"


def _cold(world: World) -> str:
    return f"it started at {world.slurmctld_started_at:%Y-%m-%d %H:%M:%S} UTC and shows no job and no drain from before"


def _in_doubt(world: World, incident: Incident) -> Moved:
    """Drain a node whose resume is in doubt, and leave the rest to an operator: a drain costs capacity, a faulty node costs jobs."""
    note = (
        f"{incident.node} is in service; unknown whether an operator resumed it or slurmctld forgot its drain ({_cold(world)}; "
        f"Holdfast did not watch). It is drained again; if you trust it: scontrol update nodename={incident.node} state=resume"
    )
    doubted = replace(repair_progress.attempt_over(incident), drain_lost_at=world.now, resumed_in_doubt=True)
    if incident.state is _S.AWAITING_HUMAN:
        return replace(doubted, note=note), [remark(incident, world.now, note)]
    return move(doubted, _S.AWAITING_HUMAN, world.now, note)


def _put_back(world: World, incident: Incident) -> Moved:
    """Close the incident of a node that an operator trusts: at once, so that no job on it counts as affected, and a new fault counts as
    new. Machines launched for it are still terminated (:mod:`holdfast.decisions.repair.cleanup`)."""
    return close(incident, world.now, f"{PUT_BACK}{_still_so(world, incident)}")


PUT_BACK = "an operator or another tool put the node back into service: theirs now"


def _trusted(world: World, view: ClusterView, incident: Incident) -> Moved | None:
    """An operator resumed a node that slurmctld had set DOWN while its drain was withheld (pause, observe mode, a brake): the incident is
    over, but for what is still so, or was found since. None: something is, or no one did."""
    seen = world.seen_down[incident.node]
    if incident.dead or not machine_gone.of_a_machine(incident) or machine_gone.begun(world, incident):
        return None
    if resumed(world, view, incident) is not Resumed.BY_HUMAN:
        return None
    found = [f for f in node_incidents.findings_of(world, incident) if f.cleared_at is None]
    if any(not serving_now.over(world, incident, f) and (f.sticky or f.received_at > seen.last) for f in found):
        return None
    after, events = close(incident, world.now, f"{PUT_BACK}; what was found before is no ground to drain it")
    return after, [*machine_gone.outage(world, incident), *events]


def _still_so(world: World, incident: Incident) -> str:
    """Text about faults that are not shown to be repaired; empty: none, or only silence spoke against the node."""
    stands = [
        f
        for f in node_incidents.findings_of(world, incident)
        if f.cleared_at is None and not serving_now.over(world, incident, f)
    ]
    if not stands:
        return ""
    first = min(stands, key=lambda f: (f.headline != incident.headline, f.id))  # rule prose: which is named first
    more = f" and {len(stands) - 1} more" if len(stands) > 1 else ""
    return (
        f". Nothing shows that its fault is repaired ({first.headline}{more}): when a check reports it again, the node is drained "
        f"again. To keep it in service all the same: holdfast suppress --node {incident.node} --check {first.check} --for 8h --reason WHY"
    )
