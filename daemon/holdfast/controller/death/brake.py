"""Many nodes silent at once are one cause: a cut network, a bad roll-out, a lost rack. Pure.

Nothing is concluded from it about any of them until power says off; the operator is told once, with what their jobs do meanwhile."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.controller import facts, hands_off
from holdfast.controller.death import domains, evidence
from holdfast.model.book import World
from holdfast.model.cluster import ClusterView
from holdfast.model.incident import Incident, IncidentKind
from holdfast.model.lookback import DEATHS_S

FLEET = "the cluster"


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that fell silent within ten minutes of each other."""

    where: str
    """Their failure domain, or :data:`FLEET`."""
    nodes: tuple[str, ...]
    """Also those that report again since less than ten minutes: the last ones of a cut that ends are not deaths. Of a failure domain only
    where they were silent at the same time; of the cluster all."""
    silent: int
    """How many of them do not report now."""
    since: datetime
    """When the first of them was last heard."""
    jobs_advance: bool
    """The steps of a job of theirs still advance on its other nodes."""
    most: int
    """How many deaths at once are allowed there."""

    @property
    def text(self) -> str:
        """``31 nodes of 10.2.3.0/24 do not report; their job advances``."""
        one = self.silent == 1
        who = f"1 node of {self.where} does" if one else f"{self.silent} nodes of {self.where} do"
        jobs = f"; {'its' if one else 'their'} job advances" if self.jobs_advance else ""
        return f"{who} not report{jobs}"


@dataclass(frozen=True, slots=True)
class _Span:
    """One silence of a node."""

    node: str
    since: datetime
    until: datetime | None
    """When the node reported again; None: it is silent."""


def silent_since(world: World, silent: Collection[str]) -> dict[str, datetime]:
    """Node → when it was last heard, of silent nodes that count as deaths: neither asleep nor taken out of service by someone else."""
    view = world.view
    if view is None:
        return {}
    fault_at = {i.node: i.fault_at for i in world.book.open_incidents() if i.dead or i.kind is IncidentKind.SILENCE}
    found: dict[str, datetime] = {}
    for name in silent:
        shown = view.nodes.get(name)
        if (
            shown is None
            or facts.drained_by_others(world, shown)
            or hands_off.explains_silence(world, name) is not None
        ):
            continue
        heard = max((a.last_heard for a in world.agents.get(name, ())), default=None)
        found[name] = heard or fault_at.get(name) or world.listening_since or world.now
    return found


def _over(world: World, now_silent: Collection[str]) -> list[_Span]:
    """The newest silence of each node that was silent and reports again since less than ten minutes."""
    found: dict[str, _Span] = {}
    for incident in world.book.incidents.values():
        if incident.kind is not IncidentKind.SILENCE or incident.node in now_silent:
            continue
        until = _heard_again(world, incident)
        known = found.get(incident.node)
        recent = until is not None and world.now - until <= timedelta(seconds=DEATHS_S)
        if recent and (known is None or known.since < incident.fault_at):
            found[incident.node] = _Span(incident.node, incident.fault_at, until)
    return list(found.values())


def _heard_again(world: World, incident: Incident) -> datetime | None:
    """When the silence that the incident is about ended: an agent of the node is heard without a gap since then. None: it has not."""
    heard = (a.first_heard for a in world.agents.get(incident.node, ()) if a.first_heard > incident.fault_at)
    ends = [at for at in (*heard, incident.closed_at) if at is not None]
    return min(ends, default=None)


def groups(world: World, silent: Collection[str]) -> tuple[Group, ...]:
    """Where more nodes fell silent at once than deaths are believed. ``silent``: all silent nodes."""
    view = world.view
    now_silent = silent_since(world, silent)
    death = world.policy.death
    if view is None or not now_silent:
        return ()
    spans = [_Span(node, since, None) for node, since in now_silent.items()] + _over(world, set(silent))
    by_node = {span.node: span for span in spans}
    found = [
        (
            domain,
            [by_node[n] for n in members if n in by_node],
            max(1, math.floor(len(members) * death.deaths_domain_share)),
        )
        for domain, members in domains.domains(view, death, world.background.addresses).items()
    ]
    most = max(death.deaths_10min, math.floor(len(view.nodes) * death.deaths_10min_share))
    found.append((FLEET, spans, most))
    together = (
        Group(
            where,
            tuple(s.node for s in group),
            sum(1 for s in group if s.until is None),
            min(s.since for s in group),
            _jobs_advance(world, view, tuple(s.node for s in group)),
            limit,
        )
        for where, members, limit in found
        for group in _together(members, limit, overlapping=where != FLEET)
    )
    return _widest(together)


def _together(spans: Iterable[_Span], most: int, *, overlapping: bool) -> list[tuple[_Span, ...]]:
    """Largest sets of more than ``most`` nodes that fell silent within ten minutes, some of them silent still, one for each node that
    begins one. ``overlapping``: only silences at the same time."""
    ordered = sorted(spans, key=lambda s: (s.since, s.node))
    found: list[tuple[_Span, ...]] = []
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


def _unbroken(spans: list[_Span]) -> list[_Span]:
    """Those of one stretch of time, up to now, in which at each moment one of them was silent."""
    since = min((s.since for s in spans if s.until is None), default=None)
    kept = [s for s in spans if s.until is None]
    if since is None:
        return []
    for span in sorted((s for s in spans if s.until is not None), key=lambda s: s.until or s.since, reverse=True):
        if span.until is not None and span.until > since:
            kept.append(span)
            since = min(since, span.since)
    return sorted(kept, key=lambda s: (s.since, s.node))


def _widest(found: Iterable[Group]) -> tuple[Group, ...]:
    """A group whose nodes are all in another is no cause of its own; of two with the same nodes the domain has the name."""
    ordered = sorted(found, key=lambda g: (-len(g.nodes), g.where == FLEET, g.since, g.where))
    kept: list[Group] = []
    for group in ordered:
        if not any(set(group.nodes) <= set(other.nodes) for other in kept):
            kept.append(group)
    return tuple(kept)


def _jobs_advance(world: World, view: ClusterView, nodes: tuple[str, ...]) -> bool:
    away = frozenset(nodes)
    jobs = (j for j in view.jobs.values() if facts.holds(j) and away & set(j.nodes))
    return any(evidence.advances(world, job, away) for job in jobs)


def braked(found: Iterable[Group]) -> dict[str, Group]:
    """Node → the group that it belongs to."""
    return {name: group for group in reversed(tuple(found)) for name in group.nodes}


def holds(world: World, incident: Incident, held: Mapping[str, Group]) -> Group | None:
    """The group that keeps this node from being touched; None: none does, or its power is off."""
    group = held.get(incident.node)
    return None if group is None or evidence.power_off(world, incident) is not None else group
