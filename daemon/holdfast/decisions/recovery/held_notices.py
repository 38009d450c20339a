"""Notification of an operator about each job that Holdfast holds. Pure."""

from __future__ import annotations

from holdfast.decisions.common.part import Part
from holdfast.decisions.recovery.held_jobs import held_incidents
from holdfast.model.actions import steps
from holdfast.model.actions.action import Notify, Proposal
from holdfast.model.book import World
from holdfast.model.notice import NoticeLevel, Topic


def tell_of_held_jobs(world: World) -> Part:
    """Once for each: its owner reads the same in the job's AdminComment."""
    step = steps.notify_held_job()
    proposals = []
    for incident in held_incidents(world):
        if incident.acknowledged or not world.may_try(incident.id, step):
            continue
        body = f"{incident.headline}: {incident.note}"
        why = "a held job starts only after its owner or an operator releases it"
        proposals.append(
            Proposal(
                incident.id,
                step,
                Notify(incident.headline, body, NoticeLevel.NEEDS_SOMEBODY, Topic.JOB_HELD),
                why,
                order=90,
            )
        )
    return Part(tuple(proposals))
