"""Incidents from a store restored from a backup: too old to act upon. Pure.

An incident from before the restore on which no action was taken is closed: its fault may have been repaired or cleared since the backup.
Agents report again what lasts (``reminder_s``, ten minutes), which opens another one. Incidents with a started step continue, and
:mod:`holdfast.decisions.nodes.adopt_drains` handles nodes that Slurm shows drained for one."""

from __future__ import annotations

from holdfast.decisions.common import slurm_view
from holdfast.model.actions.action import SendOrder, TellOwner
from holdfast.model.book import Change, World
from holdfast.model.ids import incident_of_reason
from holdfast.model.incidents.incident import ABOUT_JOBS, Incident, IncidentState
from holdfast.model.incidents.transitions import close

_UNTOUCHED = frozenset({IncidentState.OPEN, IncidentState.WATCHING, IncidentState.SUSPECTED})
NOTE = "from before the store was restored, and nothing had been done about it: its agent reports it again if it lasts"


def forget_old_findings(world: World) -> Change:
    """Close what was only found before the store was restored."""
    restored_at, view = world.book.restored_at, slurm_view.fresh_view(world)
    if restored_at is None or view is None:
        return Change()
    old = [i for i in world.book.open_incidents() if i.opened_at < restored_at and _only_found(world, i)]
    moved = [close(incident, world.now, NOTE) for incident in old]
    return Change(incidents=tuple(i for i, _ in moved), events=tuple(e for _, events in moved for e in events))


def _only_found(world: World, incident: Incident) -> bool:
    if incident.state not in _UNTOUCHED or incident.acknowledged or incident.kind in ABOUT_JOBS:
        return False
    if incident.node in world.book.marks or _drained_for(world, incident):
        return False
    begun = (i for i in world.book.intents_of(incident.id) if i.started_at is not None)
    return all(isinstance(i.action, SendOrder | TellOwner) for i in begun)


def _drained_for(world: World, incident: Incident) -> bool:
    node = world.view.nodes.get(incident.node) if world.view is not None else None
    return node is not None and node.out_of_service and incident_of_reason(node.reason) == incident.id
