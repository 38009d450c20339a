"""Common cause of several silent nodes: a network cut, a bad roll-out, a lost rack. Pure.

Two nodes are enough if the head node reaches neither: a network cut looks the same. Nothing is concluded about any of them until the
provider reports power off; the operator is notified once, with the state of their jobs."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.decisions.common import slurm_view
from holdfast.decisions.common.once import once_per_world
from holdfast.decisions.death import domains, evidence
from holdfast.decisions.silence import spans
from holdfast.decisions.silence.spans import Span
from holdfast.model.book import World
from holdfast.model.incidents.incident import Incident
from holdfast.model.policies.lookback import DEATHS_S
from holdfast.model.slurm.cluster import ClusterView

FLEET = "the cluster"


@dataclass(frozen=True, slots=True)
class SilentGroup:
    """Nodes that fell silent within ten minutes of each other."""

    where: str
    """Their failure domain, or :data:`FLEET`."""
    nodes: tuple[str, ...]
    """Also those that report again: the last ones of a cut that ends are not deaths (docs/decisions/0024)."""
    silent: tuple[str, ...]
    """Those of them that do not report now."""
    since: datetime
    """When the first of them last reported."""
    jobs_advance: bool
    """Whether a job of theirs still advances on its other nodes."""
    most: int
    """Most deaths at once allowed there."""
    machines_only: bool = False
    """They fell silent further apart than one cut, together with one that lost its power, or while no controller listened: each is judged
    alone, and no machine of theirs is touched."""
    unseen: bool = False
    """One node, which fell silent while no controller listened: nodes cut off with it may be back."""

    @property
    def text(self) -> str:
        """``31 nodes of 10.2.3.0/24 do not report; their job advances``."""
        one = len(self.silent) == 1
        who = f"1 node of {self.where} does" if one else f"{len(self.silent)} nodes of {self.where} do"
        jobs = f"; {'its' if one else 'their'} job advances" if self.jobs_advance else ""
        return f"{who} not report{jobs}"

    @property
    def reason(self) -> str:
        """Reason why a node of theirs is left alone, with the group's text."""
        if self.unseen:
            return (
                f"{self.text}, silent since before the controller started: others may have been cut off with it and be back. Its machine "
                "is left alone until its power is off"
            )
        if self.machines_only:
            return f"{self.text}, silent within ten minutes of each other: their machines are left alone until their power is off"
        return f"{self.text}: one cause, nothing is done to them until their power is off"


def groups(world: World, silent: Collection[str]) -> tuple[SilentGroup, ...]:
    """The sets of nodes whose silences may have one cause. ``silent``: all silent nodes."""
    return _groups(world, tuple(sorted(silent)))


@once_per_world
def _groups(world: World, silent: tuple[str, ...]) -> tuple[SilentGroup, ...]:
    view, silences = world.view, spans.silences(world, silent)
    ours = frozenset(s.node for s in silences if s.until is None)
    if view is None or not ours:
        return ()
    cuts = spans.cuts(world, silent)
    several = _widest([*_many(world, view, silences, cuts, ours), *_cuts(world, view, cuts, ours)])
    off = spans.without_power(world, silent)
    there = ours - {s.node for s in off}
    apart = _widest(
        [
            *_cuts(world, view, cuts, there, machines_only=True, within_s=DEATHS_S),
            *(_cuts(world, view, (*cuts, *off), there, machines_only=True) if off else ()),
        ]
    )
    return (*several, *(g for g in apart if not any(set(g.nodes) <= set(other.nodes) for other in several)))


def _many(
    world: World, view: ClusterView, silences: Collection[Span], cuts: Collection[Span], ours: Collection[str]
) -> list[SilentGroup]:
    """Groups above the limits: in a failure domain, nodes that may be cut off; in the cluster, all that do not report. ``ours``: silent
    nodes not taken over by an operator or Slurm; the others may be switched off, and do not count."""
    death, recent = world.policy.death, spans.recent(world, silences)
    cut_off = {s.node: s for s in spans.recent(world, cuts) if s.until is not None or s.node in ours}
    candidates: list[tuple[str, list[Span], int]] = [
        (
            domain,
            [cut_off[n] for n in members if n in cut_off],
            max(1, math.floor(len(members) * death.deaths_domain_share)),
        )
        for domain, members in domains.domains(view, death, world.background.addresses).items()
    ]
    most = max(death.deaths_10min, math.floor(len(slurm_view.fleet(world)) * death.deaths_10min_share))
    candidates.append((FLEET, recent, most))
    return [
        _group(world, view, where, group, limit)
        for where, members, limit in candidates
        for group in _together(members, limit, overlapping=where != FLEET)
    ]


def _cuts(
    world: World,
    view: ClusterView,
    cuts: Iterable[Span],
    ours: Collection[str],
    *,
    machines_only: bool = False,
    within_s: float = 0.0,
) -> list[SilentGroup]:
    """For each of our nodes that may be cut off, the others that may have stopped answering at the same moment or within ``within_s``,
    whether or not they answer again."""

    def end(span: Span) -> datetime:
        return max(span.begun_by, span.since + timedelta(seconds=within_s))

    ordered, by_end = sorted(cuts, key=lambda s: (s.since, s.node)), sorted(cuts, key=end)
    known = {s.node: s for s in ordered}
    begins, ends = [s.since for s in ordered], [end(s) for s in by_end]
    found: dict[tuple[int, int, str], tuple[Span, ...]] = {}
    for span in ordered:
        if span.until is not None or span.node not in ours:
            continue
        before, upto = bisect_left(ends, span.since), bisect_right(begins, end(span))
        marked = span.near if machines_only else span.cut_with
        lone = span.node if machines_only and span.unseen and not marked else ""
        if (before, upto, marked or lone) not in found and (marked or lone or upto - before > 1):
            gone = set(by_end[:before])
            those = {s.node: s for s in ordered[:upto] if s not in gone}
            if marked and marked not in those:
                other = known.get(marked)
                both = other is not None and span.node in (other.cut_with, other.near)
                those[marked] = other if other is not None and both else Span(marked, span.since, span.since)
            found[before, upto, marked or lone] = tuple(those.values())
    return [
        _group(world, view, _where(world, view, those), those, 1, machines_only=machines_only)
        for those in found.values()
        if len(those) > 1 or any(s.unseen for s in those)
    ]


def _where(world: World, view: ClusterView, those: Iterable[Span]) -> str:
    """The one failure domain that the nodes share, or the cluster."""
    shown = (view.nodes.get(s.node) for s in those)
    death, addresses = world.policy.death, world.background.addresses
    names = {domains.domain_of(node, death, addresses) for node in shown if node is not None}
    one = names.pop() if len(names) == 1 else None
    return one or FLEET


def _group(
    world: World, view: ClusterView, where: str, those: Iterable[Span], most: int, *, machines_only: bool = False
) -> SilentGroup:
    ordered = sorted(those, key=lambda s: (s.since, s.node))
    nodes = tuple(dict.fromkeys(s.node for s in ordered))
    return SilentGroup(
        where if where != FLEET else _where(world, view, ordered),
        nodes,
        silent=tuple(dict.fromkeys(s.node for s in ordered if s.until is None)),
        since=ordered[0].since,
        jobs_advance=_jobs_advance(world, view, nodes),
        most=most,
        machines_only=machines_only,
        unseen=len(nodes) == 1,
    )


def _together(those: Iterable[Span], most: int, *, overlapping: bool) -> list[tuple[Span, ...]]:
    """Largest sets of more than ``most`` nodes that fell silent within ten minutes, some of them silent still, one for each node that
    starts one. ``overlapping``: only silences at the same time."""
    ordered = sorted(those, key=lambda s: (s.since, s.node))
    found: list[tuple[Span, ...]] = []
    end = 0
    for begin, first in enumerate(ordered):
        while end < len(ordered) and ordered[end].since - first.since <= timedelta(seconds=DEATHS_S):
            end += 1
        if end - begin <= most:
            continue
        group = tuple(_unbroken(ordered[begin:end]) if overlapping else ordered[begin:end])
        lasts = any(s.until is None for s in group)
        if lasts and len(group) > most and not (found and set(group) <= set(found[-1])):
            found.append(group)
    return found


def _unbroken(those: list[Span]) -> list[Span]:
    """Those of one stretch of time, up to now, in which at each moment one of them was silent."""
    since = min((s.since for s in those if s.until is None), default=None)
    kept = [s for s in those if s.until is None]
    if since is None:
        return []
    for span in sorted((s for s in those if s.until is not None), key=lambda s: s.until or s.since, reverse=True):
        if span.until is not None and span.until > since:
            kept.append(span)
            since = min(since, span.since)
    return sorted(kept, key=lambda s: (s.since, s.node))


def _widest(found: Iterable[SilentGroup]) -> tuple[SilentGroup, ...]:
    """Drop groups whose nodes are all in another group; of two with the same nodes the failure domain is kept."""
    ordered = sorted(found, key=lambda g: (-len(g.nodes), g.where == FLEET, g.since, g.where))
    kept: list[SilentGroup] = []
    for group in ordered:
        if not any(set(group.nodes) <= set(other.nodes) for other in kept):
            kept.append(group)
    return tuple(kept)


def _jobs_advance(world: World, view: ClusterView, nodes: tuple[str, ...]) -> bool:
    away = frozenset(nodes)
    jobs = (j for j in view.jobs.values() if slurm_view.holds(j) and away & set(j.nodes))
    return any(evidence.advances(world, job, away) for job in jobs)


def began(world: World, silent: Collection[str], group: SilentGroup) -> datetime:
    """Start of the series of silences of which the group is the newest part: each within ten minutes of the one before. Nodes that are
    rebooted one after another are one series."""
    every = (*spans.silences(world, silent), *spans.cuts(world, silent))
    view, since = world.view, group.since
    if view is not None and group.where != FLEET:
        members = domains.domains(view, world.policy.death, world.background.addresses)
        there = frozenset(members.get(group.where, ()))
        every = tuple(s for s in every if s.node in there)
    for earlier in sorted((s.since for s in every if s.since < since), reverse=True):
        if since - earlier > timedelta(seconds=DEATHS_S):
            break
        since = earlier
    return since


def braked(found: Iterable[SilentGroup]) -> dict[str, SilentGroup]:
    """Node → the group with which it has one cause: nothing is concluded about it."""
    return _by_node(g for g in found if not g.machines_only)


def keeping_machines(found: Iterable[SilentGroup]) -> dict[str, SilentGroup]:
    """Node → the group for which its machine is left alone."""
    groups = tuple(found)
    return {**_by_node(g for g in groups if g.machines_only), **braked(groups)}


def _by_node(found: Iterable[SilentGroup]) -> dict[str, SilentGroup]:
    return {name: group for group in reversed(tuple(found)) for name in group.silent}


def holds(world: World, incident: Incident, held: Mapping[str, SilentGroup]) -> SilentGroup | None:
    """The group that keeps this node from being touched; None: none does, or its power is off."""
    group = held.get(incident.node)
    return None if group is None or evidence.power_off(world, incident) is not None else group
