"""History of each node over weeks: its outages, and whether it is a lemon. Pure.

Meta found that few nodes cause many failures (1.2 % of RSC-1 were lemons, 13 % of its daily jobs met one) and that taking them out lowered
failures of large jobs from 14 to 4 %. The thresholds are those of :class:`~holdfast.model.policies.policy.HistoryPolicy`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from holdfast.decisions.common.node_drains import DrainedBy
from holdfast.decisions.recovery.affected_jobs import own_exclusions
from holdfast.model.background import Lemon, Outage
from holdfast.model.book import World
from holdfast.model.event import BY_OTHERS, Event, EventKind
from holdfast.model.incidents.incident import Incident, Recovery
from holdfast.model.policies.policy import HistoryPolicy
from holdfast_checks.result import Remedy

_BY_OTHERS = (EventKind.NODE_DRAINED_BY_OTHERS, EventKind.NODE_DOWN)
KINDS = (EventKind.NODE_OUT, EventKind.NODE_RETURNED, *_BY_OTHERS, EventKind.NODE_RESUMED_BY_OTHERS)
"""Events that the outages are made of."""
_EXCUSED = frozenset({Remedy.NONE, Remedy.RESTART_JOB})


def outages(
    events: Iterable[Event], incidents: Mapping[str, Incident], recoveries: Iterable[Recovery]
) -> tuple[Outage, ...]:
    """Each incident that took its node out, once, in the order of time. What others took out is none of ours, unless a rule of the site
    counts it (``[[drain_rules]]``) and no incident of Holdfast's counts it already."""
    events = sorted(events, key=lambda e: e.at)
    ours = _of_incidents(events, incidents, recoveries)
    counted = [o for o in _of_others(events) if not any(_within(o, each) for each in ours)]
    return tuple(sorted((*ours, *counted), key=lambda o: (o.out_at, o.incident_id, o.node)))


def _of_incidents(
    events: Iterable[Event], incidents: Mapping[str, Incident], recoveries: Iterable[Recovery]
) -> list[Outage]:
    suspect = {r.incident_id for r in recoveries if r.suspect}
    found: dict[str, Outage] = {}
    for event in events:
        number = event.incident_id or ""
        if event.kind is EventKind.NODE_OUT and number not in found and event.detail.get("by") != DrainedBy.FOREIGN:
            found[number] = _outage(event, incidents.get(number), suspect)
        elif event.kind is EventKind.NODE_RETURNED and number in found:
            by_others = event.detail.get(BY_OTHERS) is True
            found[number] = replace(found[number], back_at=event.at, by_others=by_others)
    return list(found.values())


def _of_others(events: Iterable[Event]) -> list[Outage]:
    """Drains of single nodes that a rule counts. What many nodes had at once is the doing of none of them."""
    over: list[Outage] = []
    going: dict[str, Outage] = {}
    for event in events:
        node = event.node or ""
        if not node:
            continue
        if event.kind is EventKind.NODE_RESUMED_BY_OTHERS and node in going:
            over.append(replace(going.pop(node), back_at=event.at, over=True))
        elif event.kind in _BY_OTHERS and event.detail.get("scores") is True and node not in going:
            going[node] = Outage(node, "", "", event.text, event.at, by_others=True)
    return [*over, *going.values()]


def _within(drain: Outage, ours: Outage) -> bool:
    """Whether Holdfast's own incident took the node out while that drain was there: it is the same fault."""
    same = drain.node == ours.node and drain.out_at <= ours.out_at
    return same and (drain.back_at is None or ours.out_at <= drain.back_at)


def _outage(event: Event, incident: Incident | None, suspect: Collection[str]) -> Outage:
    return Outage(
        node=event.node or "",
        incident_id=event.incident_id or "",
        instance_id=incident.instance_id if incident is not None else "",
        what=incident.headline if incident is not None else event.text,
        out_at=event.at,
        over=incident is None or not incident.open,
        ended=incident.note if incident is not None and not incident.open else "",
        excused=incident is not None
        and (incident.only_ordered or incident.remedy in _EXCUSED or incident.id in suspect),
    )


def excluding_users(world: World) -> dict[str, int]:
    """Node → how many different users exclude it from a job of theirs now; without what Holdfast excluded for them."""
    users: dict[str, set[int]] = {}
    jobs = world.view.jobs.values() if world.view is not None else ()
    for job in jobs:
        if job.excluded_nodes:
            for node in own_exclusions(world, job):
                users.setdefault(node, set()).add(job.uid)
    return {node: len(found) for node, found in users.items()}


def lemons(
    known: Iterable[Outage],
    serving: Mapping[str, str],
    excluded: Mapping[str, int],
    policy: HistoryPolicy,
    fresh_s: float,
    now: datetime,
) -> dict[str, Lemon]:
    """Nodes with a score. Only faults of the machine that serves the node now count (``serving``: node → instance id; where a machine is
    not known, the name stands for it): a replaced one takes its history with it."""
    by_node: dict[str, list[Outage]] = {}
    for outage in known:
        machine = serving.get(outage.node, "")
        if not outage.excused and (not machine or outage.instance_id in ("", machine)):
            by_node.setdefault(outage.node, []).append(outage)
    scored = {
        node: _judge(by_node.get(node, []), excluded.get(node, 0), policy, fresh_s, now)
        for node in {*by_node, *excluded}
    }
    return {node: lemon for node, lemon in sorted(scored.items()) if lemon.score or lemon.holds(now)}


class CountedFault(NamedTuple):
    """One outage of a node, and what it counts for its score."""

    outage: Outage
    weight: int
    """2: it came soon after the node's return; 0: it counts for nothing."""
    until: datetime | None
    """When it stops to count; None: it does not count."""
    why: str
    """Why it counts so, for people."""


def explained(
    known: Iterable[Outage], serving: Mapping[str, str], policy: HistoryPolicy, fresh_s: float, now: datetime
) -> dict[str, list[CountedFault]]:
    """Node → its outages with what each counts, newest first: the rule of :func:`lemons`, spelled out."""
    by_node: dict[str, list[Outage]] = {}
    for outage in known:
        by_node.setdefault(outage.node, []).append(outage)
    return {node: _explained(mine, serving.get(node, ""), policy, fresh_s, now) for node, mine in by_node.items()}


def _explained(
    mine: list[Outage], machine: str, policy: HistoryPolicy, fresh_s: float, now: datetime
) -> list[CountedFault]:
    counting = sorted((o for o in mine if not _why_not(o, machine)), key=lambda o: o.out_at)
    weights = {id(o): weight for o, (_, weight) in zip(counting, _weighed(counting, fresh_s), strict=True)}
    found = [_counted(o, _why_not(o, machine), weights.get(id(o), 0), policy, fresh_s, now) for o in mine]
    return sorted(found, key=lambda f: f.outage.out_at, reverse=True)


def _counted(
    outage: Outage, why_not: str, weight: int, policy: HistoryPolicy, fresh_s: float, now: datetime
) -> CountedFault:
    until = outage.out_at + timedelta(seconds=policy.window_s)
    if why_not or until < now:
        return CountedFault(outage, 0, None, why_not or f"older than {_days(policy.window_s)}")
    why = f"counts twice: within {fresh_s / 60:.0f} min after its return" if weight > 1 else "counts once"
    return CountedFault(outage, weight, until, why)


def _why_not(outage: Outage, machine: str) -> str:
    if outage.excused:
        return "not the node's doing"
    other = machine and outage.instance_id not in ("", machine)
    return f"of machine {outage.instance_id}, which no longer serves the node" if other else ""


def _judge(mine: list[Outage], users: int, policy: HistoryPolicy, fresh_s: float, now: datetime) -> Lemon:
    faults = _weighed(mine, fresh_s)
    window = timedelta(seconds=policy.window_s)
    recent = [(at, weight) for at, weight in faults if now - at <= window]
    repeats = sum(weight - 1 for _, weight in recent)
    reasons = [f"{_times(len(recent))} in {_days(policy.window_s)}"] if recent else []
    if repeats:
        reasons.append(f"{_times(repeats)} within {fresh_s / 60:.0f} min after its return")
    avoided = users >= policy.excluding_users > 0
    if avoided:
        reasons.append(f"excluded by {users} users")
    held = _until(faults, policy, now)
    if held is not None:
        reasons.insert(0, f"lemon until {held.at:%Y-%m-%d}: {held.rule}")
    until = held.at if held is not None else None
    return Lemon(sum(weight for _, weight in recent) + avoided, until, tuple(reasons))


def _weighed(mine: list[Outage], fresh_s: float) -> list[tuple[datetime, int]]:
    """(when, weight): a fault soon after the node came back counts twice."""
    faults: list[tuple[datetime, int]] = []
    back_at: datetime | None = None
    for outage in sorted(mine, key=lambda o: o.out_at):
        repeat = back_at is not None and (outage.out_at - back_at).total_seconds() < fresh_s
        faults.append((outage.out_at, 2 if repeat else 1))
        back_at = outage.back_at or back_at
    return faults


class _Until(NamedTuple):
    """The end of a time as a lemon, and by which rule."""

    at: datetime
    rule: str


def _until(faults: list[tuple[datetime, int]], policy: HistoryPolicy, now: datetime) -> _Until | None:
    """The end of the newest time as a lemon; None: it is none now."""
    found: _Until | None = None
    rules = ((policy.short_window_s, policy.short_faults), (policy.window_s, policy.faults))
    for at, _ in faults:
        for window_s, least in rules:
            count = sum(w for other, w in faults if timedelta(0) <= at - other <= timedelta(seconds=window_s))
            end = at + timedelta(seconds=policy.lemon_s)
            if least > 0 and count >= least and end > (found.at if found is not None else now):
                found = _Until(end, f"{count} faults in {_days(window_s)}, {least} are enough")
    return found


def _times(number: int) -> str:
    return f"{number} fault{'' if number == 1 else 's'}"


def _days(seconds: int) -> str:
    return f"{seconds / 86400:g} days"
