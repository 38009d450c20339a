"""Stragglers: parts of a job that are slower than the others. Pure.

In synchronous training all parts show the same step time: a slow part shows in the time it needs before it waits for the others (``own_ms``
of a progress report). The parts are the groups of an elastic job, or the nodes of any other one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from statistics import median

from holdfast.decisions.common import mounts, node_incidents, slurm_view
from holdfast.decisions.common.elastic_jobs import elastic_jobs
from holdfast.decisions.hangs.progress_stall import words_of
from holdfast.decisions.probing import suspects
from holdfast.model.actions.action import IntentState, SendOrder
from holdfast.model.book import Change, World
from holdfast.model.event import Event
from holdfast.model.ids import NewId
from holdfast.model.incidents.incident import Incident, IncidentKind, IncidentState
from holdfast.model.incidents.transitions import NewIncident, close, move
from holdfast.model.policies.hangs import StragglerPolicy
from holdfast.model.policies.lookback import INQUIRIES_S
from holdfast.model.slurm.cluster import ClusterView, Job, JobRun

SLOTS = 13
"""Slots of five seconds that a part must have reported: more than a minute, and more than ten reports (``store/progress.py``)."""
MOST_PER_USER = 12
"""Most incidents about slow parts of one user's jobs opened within an hour: parts may alternate at being slow, or at reporting it."""
STALE_S = 30.0
"""A part whose last report of its time is older is not compared."""
_NORMAL = 1.4826
"""The median absolute deviation of a normal distribution, times this, is its standard deviation (1 / 0.6745)."""


@dataclass(frozen=True, slots=True)
class JobPart:
    """One group, or one node, of a job."""

    name: str
    job: Job
    node: str
    own_ms: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StragglerLimit:
    """Longest time that a part may take before it counts as slow."""

    typical_ms: float
    """Median over the parts."""
    most_ms: float


def limit(times: Mapping[str, Sequence[int]], policy: StragglerPolicy) -> StragglerLimit | None:
    """Threshold from each part's median; None with fewer than three parts: the slow one cannot be identified.

    From four parts on the modified z-score of Iglewicz and Hoaglin (1993), 0.6745 (x - median) / MAD, and a minimum share as well: parts
    that agree to a thousandth have a MAD near zero. With three the MAD says little, so a plain ratio counts."""
    typical = [float(median(times[name])) for name in sorted(times) if times[name]]
    if len(typical) < 3:
        return None
    middle = median(typical)
    if len(typical) == 3:
        return StragglerLimit(middle, middle * policy.ratio)
    deviation = _NORMAL * median(abs(t - middle) for t in typical)
    return StragglerLimit(middle, max(middle + policy.robust_z * deviation, middle * (1 + policy.slower_share)))


def is_slow(own_ms: Sequence[int], most: StragglerLimit) -> bool:
    """In each slot of the last minute, not only now and then."""
    return bool(own_ms) and min(own_ms) > most.most_ms


def follow_stragglers(world: World, new_id: NewId) -> Change:
    """Open an incident for each part that is slow, close those of parts that no longer are, or are gone."""
    view = slurm_view.fresh_view(world)
    if view is None or world.frozen is not None:
        return Change()
    compared = _compared(world, view)
    incidents: list[Incident] = []
    events: list[Event] = []
    open_ = {(i.run, i.node): i for i in straggling(world)}
    for incident in open_.values():
        changed, seen = _follow(world, view, incident, compared.get((incident.run, incident.node)))
        incidents += changed
        events += seen
    told = _told_lately(world)
    for (run, node), (part, most) in compared.items():
        if (
            (run, node) not in open_
            and is_slow(part.own_ms, most)
            and not mounts.in_a_stall(world, part.job, world.now)
            and told[part.job.uid] < MOST_PER_USER
        ):
            told[part.job.uid] += 1
            new = _slow(world, part, most, new_id)
            incident, seen = suspects.open_about_job(world, new, part.job.key.text)
            incidents.append(incident)
            events += seen
    return Change(incidents=tuple(incidents), events=tuple(events))


def _told_lately(world: World) -> Counter[int]:
    """Incidents of the last hour by the user whose job they are about. A part says itself how long it took."""
    hour = world.now - timedelta(seconds=INQUIRIES_S)
    slow = (i for i in world.book.incidents.values() if i.kind is IncidentKind.STRAGGLER and i.opened_at > hour)
    return Counter(i.job_uid for i in slow if i.job_uid is not None)


def straggling(world: World) -> list[Incident]:
    """Open incidents of slow parts."""
    watched, slow = IncidentState.WATCHING, IncidentKind.STRAGGLER
    return [i for i in world.book.open_incidents() if i.kind is slow and i.follows_run and i.state is watched]


def _compared(world: World, view: ClusterView) -> dict[tuple[JobRun | None, str], tuple[JobPart, StragglerLimit]]:
    """(run, node) → the part and the limit that holds for it."""
    found: dict[tuple[JobRun | None, str], tuple[JobPart, StragglerLimit]] = {}
    for parts in _parts(world, view):
        most = limit({part.name: part.own_ms for part in parts}, world.policy.stragglers)
        if most is not None:
            found |= {(part.job.run, part.node): (part, most) for part in parts}
    return found


def _parts(world: World, view: ClusterView) -> list[list[JobPart]]:
    """Parts of each job that reported their times for long enough, and recently."""
    elastic = elastic_jobs(view)
    jobs = [[p for g in each.running for p in _of_job(world, g.job, f"group {g.index}")[:1]] for each in elastic]
    mine = {g.job.key.job_id for each in elastic for g in each.groups}
    others = (view.jobs.get(job_id) for job_id in sorted(world.book.checkpoints) if job_id not in mine)
    jobs += [_of_job(world, job, "") for job in others if job is not None and job.state == "RUNNING"]
    return [parts for parts in jobs if len(parts) > 2]


def _of_job(world: World, job: Job, name: str) -> list[JobPart]:
    """Its nodes, the slowest first: of a group of several nodes that one speaks for all."""
    since = world.now - timedelta(seconds=STALE_S)
    told = [r for r in words_of(world, job) if len(r.own_ms) >= SLOTS and r.own_at is not None and r.own_at >= since]
    told.sort(key=lambda r: (-median(r.own_ms), r.node))
    return [JobPart(name or r.node, job, r.node, r.own_ms) for r in told]


def _slow(world: World, part: JobPart, most: StragglerLimit, new_id: NewId) -> NewIncident:
    takes, others = median(part.own_ms), most.typical_ms
    told = f"takes {takes / others:.2f} times the median for its own part of a step ({takes:.0f} ms, {others:.0f} ms)"
    note = (
        "reported only; Holdfast does not act on it"
        if not world.policy.stragglers.leaves
        else "its group is asked to leave"
    )
    about = suspects.about_job(world, part.job, IncidentKind.STRAGGLER, world.now, told, note, new_id)
    headline = f"{node_incidents.STRAGGLER}: {part.name} of job {part.job.key.job_id} on {part.node} {told}"
    return replace(about, node=part.node, headline=headline, suspects=())


def _follow(
    world: World, view: ClusterView, incident: Incident, now: tuple[JobPart, StragglerLimit] | None
) -> suspects.Changed:
    job = suspects.job_of(view, incident)
    if job is None or not slurm_view.holds(job):
        return _run_is_over(world, incident)
    if now is not None and max(now[0].own_ms) <= now[1].most_ms:
        return suspects.one(close(incident, world.now, "it is as fast as the others again"))
    return [], []


def _run_is_over(world: World, incident: Incident) -> suspects.Changed:
    """Probe a node that was asked to release its group as a straggler, once it is free."""
    asked = any(
        isinstance(i.action, SendOrder) and i.state is IntentState.DONE for i in world.book.intents_of(incident.id)
    )
    if not asked or not world.policy.suspects.probe:
        return suspects.one(close(incident, world.now, "the run is over"))
    node, note = (incident.node,), f"probed in pairs: {incident.node}"
    probed = replace(incident, check=suspects.UNEXPLAINED, pair_probed=True, suspects=node, odd=node)
    text = f"the slow group has left: {note}"
    return suspects.one(move(probed, IncidentState.WATCHING, world.now, note, text=text))
