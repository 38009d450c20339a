"""Which rung does a node need? Pure.

The ladder has a memory: a third hardware fault of one node within its window calls a human, whatever the evidence says."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from holdfast.controller import facts
from holdfast.model.book import World
from holdfast.model.cluster import ClusterView
from holdfast.model.incident import Incident
from holdfast_checks.result import Remedy, Severity


class Rung(StrEnum):
    WAIT = "wait"
    """Not now: jobs still hold the node, or their fate is open."""
    VALIDATE = "validate"
    """Nothing to repair: prove the node and release it."""
    REPLACE = "replace"
    HUMAN = "human"


class Choice(NamedTuple):
    rung: Rung
    reason: str


def choose(world: World, view: ClusterView, incident: Incident) -> Choice:
    """The rung for a contained incident."""
    node = view.nodes[incident.node]
    if facts.drained_by(node) == "foreign":
        who = node.reason_user or "somebody"
        return Choice(Rung.HUMAN, f"{who} drained the node ({node.reason!r}): theirs to repair and to resume")
    if not incident.dead and not facts.free_of_jobs(view, incident.node):
        jobs = ",".join(str(j.key.job_id) for j in view.jobs_on(incident.node))
        return Choice(Rung.WAIT, f"waits for the end of job {jobs}" if jobs else "waits for the node to complete")
    if any(r.suspect for r in world.book.recoveries.values() if r.incident_id == incident.id):
        return Choice(Rung.VALIDATE, "the job is the suspect, not the node")
    if not incident.dead and _cleared(world, incident):
        return Choice(Rung.VALIDATE, "every finding has cleared")
    return _repair(world, incident)


def _repair(world: World, incident: Incident) -> Choice:
    before = _earlier_faults(world, incident)
    if incident.remedy is Remedy.HUMAN:
        return Choice(Rung.HUMAN, "the evidence calls for a human")
    if len(before) >= 2:
        days = world.policy.repair.third_fault_window_s / 86400
        return Choice(
            Rung.HUMAN, f"third hardware fault of this node in {days:.0f} days: {', '.join(i.id for i in before)}"
        )
    if incident.repair_attempt >= world.policy.repair.attempts:
        return Choice(Rung.HUMAN, f"{incident.repair_attempt} attempts to repair it failed: {incident.note}")
    if not world.can.replace:
        return Choice(
            Rung.HUMAN,
            f"{incident.remedy.value} is called for, and provider {world.provider_name!r} cannot replace a machine",
        )
    return Choice(Rung.REPLACE, f"{incident.remedy.value} is called for; a new machine takes its place")


def _cleared(world: World, incident: Incident) -> bool:
    mine = [f for f in world.book.findings.values() if f.incident_id == incident.id and not f.consequence]
    return bool(mine) and all(f.cleared_at is not None for f in mine)


def _earlier_faults(world: World, incident: Incident) -> list[Incident]:
    since = world.now - timedelta(seconds=world.policy.repair.third_fault_window_s)
    return [
        i
        for i in world.book.incidents.values()
        if i.node == incident.node
        and i.id != incident.id
        and i.severity is Severity.FATAL
        and i.remedy not in (Remedy.NONE, Remedy.RESTART_JOB)
        and i.opened_at >= since
        and i.id < incident.id
    ]
