"""Orphaned instances: launched by Holdfast, unknown to the store. Pure.

Causes: a launch whose answer was lost for good, or a store that was lost or restored; the provider shows a machine that was launched on
trial and that no open incident waits for. One whose incident is known and over is terminated; any other is reported to an operator. One
that serves is never touched, nor one of an incident that is open."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.decisions.common.part import Part
from holdfast.decisions.machines import replacement
from holdfast.model.actions import steps
from holdfast.model.actions.action import Assign, Notify, Proposal, Terminate
from holdfast.model.book import World
from holdfast.model.conditions import ConditionKind
from holdfast.model.ids import UPKEEP
from holdfast.model.incidents.incident import Incident
from holdfast.model.machine import Instance, ProviderView
from holdfast.model.notice import NoticeLevel, Topic
from holdfast.model.policies.lookback import ORPHAN_TOLD_S

GRACE_S = 600.0
"""From the launch, or from the end of its incident: what is under way settles within this, and a late list catches up."""


def orphans(world: World) -> Part:
    """Proposals about machines on trial that belong to no open incident."""
    provider = world.book.provider
    if provider is None or provider.error:
        return Part()
    proposals: list[Proposal] = []
    for machine in _unnamed(world, provider):
        proposals += _about(world, machine)
    return Part(tuple(proposals))


def unexplained(world: World) -> tuple[str, ...]:
    """Ids of the machines that an operator is notified of."""
    provider = world.book.provider
    machines = _unnamed(world, provider) if provider is not None else []
    return tuple(m.instance_id for m in machines if _why_unexplained(world, m) is not None)


def _unnamed(world: World, provider: ProviderView) -> list[Instance]:
    """Machines on trial that serve no node."""
    serving = {record.instance_id for record in world.book.nodes.values()} | _assigned(world)
    return sorted((m for m in provider.on_trial if m.instance_id not in serving), key=lambda m: m.instance_id)


def _assigned(world: World) -> set[str]:
    """Machines that were given a name, or that may have been."""
    return {i.action.instance_id for i in world.book.intents.values() if isinstance(i.action, Assign) and i.is_attempt}


def _about(world: World, machine: Instance) -> list[Proposal]:
    incident = world.book.incidents.get(machine.incident)
    if not _is_orphan(world, machine, incident):
        return []
    why = _why_unexplained(world, machine)
    if why is not None:
        return _tell(world, machine, why)
    return _end(world, machine, incident) if incident is not None else []


def _is_orphan(world: World, machine: Instance, incident: Incident | None) -> bool:
    """Whether no open incident waits for it, and what is under way has had time to settle."""
    if incident is not None and incident.open:
        return False
    return world.now - _since(world, machine, incident) >= timedelta(seconds=GRACE_S)


def _why_unexplained(world: World, machine: Instance) -> str | None:
    """Why an operator has to see to the machine; None: it is no orphan, or is ended by Holdfast."""
    incident = world.book.incidents.get(machine.incident)
    if not _is_orphan(world, machine, incident):
        return None
    if incident is None or incident.node != machine.node:
        return "This store knows nothing of it"
    if replacement.has_taken_over(world, incident):
        return f"The machine before it is ended, and {incident.node} has no other"
    return None


def _since(world: World, machine: Instance, incident: Incident | None) -> datetime:
    """When it was launched, or its incident ended; what is not known is just now."""
    launched = machine.launched_at if machine.launched_at is not None else world.now
    ended = incident.closed_at if incident is not None and incident.closed_at is not None else launched
    return max(launched, ended)


def _end(world: World, machine: Instance, incident: Incident) -> list[Proposal]:
    step = steps.terminate(machine.instance_id)
    if not world.may_try(incident.id, step):
        return []
    reason = f"launched on trial for {incident.node}, and its incident is over: {incident.note}"
    return [Proposal(incident.id, step, Terminate(machine.instance_id, incident.node), reason, order=80)]


def _tell(world: World, machine: Instance, why: str) -> list[Proposal]:
    """At most weekly: the store keeps notifications for that long."""
    step = steps.notify_orphan(machine.instance_id, int(world.now.timestamp()) // ORPHAN_TOLD_S)
    if not world.may_try(UPKEEP, step):
        return []
    whose = f"for incident {machine.incident}, " if machine.incident else "for no incident that its tags name, "
    body = (
        f"{machine.instance_id} was launched {whose}as a replacement of {machine.node or 'an unnamed node'}, and serves nothing. "
        f"{why}, so Holdfast does not touch it: terminate it, or give it a node's name, by hand."
    )
    subject = f"{machine.instance_id} runs and serves nothing"
    lasts = world.conditions.key(ConditionKind.ORPHAN, machine.instance_id)
    return [
        Proposal(
            UPKEEP,
            step,
            Notify(subject, body, NoticeLevel.NEEDS_SOMEBODY, Topic.NOBODYS_MACHINE, condition=lasts),
            "a machine that no record in the store explains",
            order=90,
        )
    ]
