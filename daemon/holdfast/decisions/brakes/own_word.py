"""Limits on stops that rest on a job's own reports: within an hour, for each user and in all. Pure.

A user can make a job report anything: that it makes no step, that one of its groups is slow. That is no evidence about a node, so such a
stop counts for no brake; above these limits only such stops are withheld, until fewer were made within the last hour."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.decisions.common.budgets import COUNTED
from holdfast.decisions.probing import suspects
from holdfast.model.actions import steps
from holdfast.model.actions.action import HoldJob, Intent, Notify, Proposal, Requeue, SendOrder, Verb
from holdfast.model.book import World
from holdfast.model.incidents.incident import ABOUT_JOBS, Incident
from holdfast.model.notice import NoticeLevel, Topic
from holdfast.model.policies.lookback import BRAKE_LONG_S


@dataclass(frozen=True, slots=True)
class StopLimit:
    """A limit that withholds a stop."""

    incident_id: str
    uid: int | None
    """The user whose limit it is; None: the limit in all."""
    text: str
    """For people."""


def about(world: World, incident_id: str) -> Incident | None:
    """The incident, where it rests on what a job reports of itself; None: on something else."""
    incident = world.book.incidents.get(incident_id)
    return incident if incident is not None and incident.kind in ABOUT_JOBS else None


@dataclass(frozen=True, slots=True)
class _Wave:
    """Stops of one job; groups of an elastic job that are stopped within ``hangs.settle_s`` are one."""

    job_id: int
    uid: int | None
    at: datetime


class OwnStops:
    """Stops of this kind that one turn may still make. Counted when the first proposal asks: most turns have none."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._waves: list[_Wave] | None = None

    def take(self, proposal: Proposal) -> StopLimit | None:
        """None, and one less is left; or the limit that is reached. None as well for what stops no job, or rests on something else."""
        incident = about(self._world, proposal.incident_id)
        if incident is None or not proposal.stops_running_job:
            return None
        if self._waves is None:
            self._waves = _of_the_last_hour(self._world)
        wave = _wave(self._world, incident, self._world.now)
        if _joins(self._world, self._waves, wave):
            return None
        refusal = self._refusal(self._waves, wave, incident.id)
        if refusal is None:
            self._waves.append(wave)
        return refusal

    def _refusal(self, waves: list[_Wave], wave: _Wave, incident_id: str) -> StopLimit | None:
        brake = self._world.policy.brake
        mine, most = sum(each.uid == wave.uid for each in waves), brake.hang_stops_per_user_60min
        what = "were stopped within an hour for what they report of themselves"
        if mine >= most:
            return StopLimit(incident_id, wave.uid, f"{mine} jobs of this user {what}, at most {most}: this one waits")
        if len(waves) >= brake.hang_stops_60min:
            text = f"{len(waves)} jobs {what}, at most {brake.hang_stops_60min}: this one waits"
            return StopLimit(incident_id, None, text)
        return None


def _of_the_last_hour(world: World) -> list[_Wave]:
    since = world.now - timedelta(seconds=BRAKE_LONG_S)
    recent = (i for i in world.book.intents.values() if i.state in COUNTED and i.planned_at > since)
    waves: list[_Wave] = []
    for intent in sorted(recent, key=lambda i: (i.planned_at, i.key)):
        incident = about(world, intent.incident_id)
        if incident is None or not _stopped(world, intent):
            continue
        wave = _wave(world, incident, intent.planned_at)
        if not _joins(world, waves, wave):
            waves.append(wave)
    return waves


def _stopped(world: World, intent: Intent) -> bool:
    action = intent.action
    if isinstance(action, Requeue):
        recovery = world.book.recovery_of(action.job, action.restarts)
        return recovery is None or recovery.stops_running_job
    return isinstance(action, HoldJob) or (isinstance(action, SendOrder) and action.verb is Verb.LEAVE)


def _wave(world: World, incident: Incident, at: datetime) -> _Wave:
    job_id = incident.run.job_id if incident.run is not None else 0
    whole = suspects.whole(world.view, job_id) if world.view is not None else job_id
    return _Wave(whole, incident.job_uid, at)


def _joins(world: World, waves: Iterable[_Wave], wave: _Wave) -> bool:
    within = timedelta(seconds=world.policy.hangs.settle_s)
    return any((w.job_id, w.uid) == (wave.job_id, wave.uid) and wave.at - w.at <= within for w in waves)


def tell(world: World, reached: Iterable[StopLimit]) -> list[Proposal]:
    """Notify an operator once of each limit, while an incident that it holds is open or was notified within the hour."""
    found: dict[int | None, StopLimit] = {}
    for each in reached:
        found.setdefault(each.uid, each)
    return [told for each in found.values() if (told := _notice(world, each)) is not None]


def _notice(world: World, limit: StopLimit) -> Proposal | None:
    step = steps.notify_own_stops(limit.uid)
    sent = (i for i in world.book.intents.values() if isinstance(i.action, Notify) and i.step == step)
    attempts = tuple(sorted((i for i in sent if i.is_attempt), key=lambda i: i.planned_at))
    if not world.may_follow(attempts):
        return None
    about_id = attempts[-1].incident_id if attempts else limit.incident_id
    incident = world.book.incidents.get(about_id)
    headline = incident.headline if incident is not None else f"incident {about_id}"
    body = f"{limit.text}\n{headline}\nNothing else is held. Ask its user."
    return Proposal(
        about_id,
        step,
        Notify(
            f"jobs that hang are not restarted: {limit.text}", body, NoticeLevel.NEEDS_SOMEBODY, Topic.HANGS_LIMITED
        ),
        limit.text,
    )
